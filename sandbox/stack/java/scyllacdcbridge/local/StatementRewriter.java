package scyllacdcbridge.local;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import org.apache.cassandra.exceptions.InvalidRequestException;
import scyllacdcbridge.local.CqlTokens.Kind;
import scyllacdcbridge.local.CqlTokens.Token;

/**
 * Rewrites a statement for ScyllaDB into one for Apache Cassandra, and returns its CDC options.
 *
 * <p>It changes only tokens, never literals, the text of quoted names or comments. It rewrites the names of ScyllaDB's
 * system tables, also where a query of {@code system_schema} asks for one by literals; a filter by
 * {@code cdc_streams.stream_id}, which finds nothing, as on ScyllaDB; {@code cdc = {...}} in CREATE and ALTER TABLE;
 * table and keyspace options that only ScyllaDB has; {@code BYPASS CACHE}; {@code USING TIMEOUT}.
 */
public final class StatementRewriter {
    /** The keyspace that holds ScyllaDB's system tables under their own names. */
    public static final String KEYSPACE = "scylla_system_tables";

    private static final Map<String, Set<String>> SYSTEM_TABLES = Map.of(
        "system_distributed", Set.of("cdc_generation_timestamps", "cdc_streams_descriptions_v2", "cdc_streams_descriptions"),
        "system", Set.of("cdc_local", "cdc_timestamps", "cdc_streams", "versions"),
        "system_schema", Set.of("scylla_tables", "scylla_keyspaces"));
    private static final Set<String> BEFORE_A_TABLE = Set.of("from", "into", "update", "table", "truncate", "exists", "on");
    private static final Set<String> SCYLLA_ONLY_OPTIONS =
        Set.of("tablets", "tombstone_gc", "per_partition_rate_limit", "paxos_grace_seconds");
    /** A statement without any of these words is not tokenized, so that bulk loads cost nothing. */
    private static final List<String> MARKS =
        List.of("cdc", "scylla_", "versions", "bypass", "timeout", "tablets", "tombstone_gc", "rate_limit", "paxos_grace");

    /** The statement to run and the CDC options that were taken out of it (null if none). */
    public record Rewritten(String cql, CdcOptions cdc) {
    }

    private final String cql;
    private final String keyspace;
    private final List<Token> tokens;
    /** Start of a replaced piece -> its end and the text to put there. */
    private final TreeMap<Integer, Edit> edits = new TreeMap<>();
    private CdcOptions cdc;

    private record Edit(int end, String text) {
    }

    private StatementRewriter(String cql, String keyspace) {
        this.cql = cql;
        this.keyspace = keyspace;
        this.tokens = CqlTokens.of(cql);
    }

    /** @param keyspace the session's keyspace, for bare table names; null if there is none */
    public static Rewritten rewrite(String cql, String keyspace) {
        if (!mayNeedWork(cql))
            return new Rewritten(cql, null);
        StatementRewriter rewriter = new StatementRewriter(cql, keyspace);
        rewriter.rewriteTableNames();
        rewriter.rewriteSchemaQuery();
        rewriter.rewriteStreamFilter();
        rewriter.dropBypassCache();
        rewriter.dropTimeouts();
        rewriter.rewriteOptions();
        return new Rewritten(rewriter.result(), rewriter.cdc);
    }

    private static boolean mayNeedWork(String cql) {
        for (String mark : MARKS)
            for (int i = 0, last = cql.length() - mark.length(); i <= last; i++)
                if (cql.regionMatches(true, i, mark, 0, mark.length()))
                    return true;
        return false;
    }

    private void rewriteTableNames() {
        for (int i = 1; i < tokens.size(); i++) {
            Token before = tokens.get(i - 1);
            if (before.kind() != Kind.WORD || !BEFORE_A_TABLE.contains(before.text().toLowerCase(Locale.ROOT)))
                continue;
            String first = tokens.get(i).identifier();
            boolean dotted = i + 2 < tokens.size() && tokens.get(i + 1).isSymbol('.');
            if (dotted && isSystemTable(first, tokens.get(i + 2).identifier()))
                replace(i, i, KEYSPACE);
            else if (!dotted && isSystemTable(keyspace, first))
                replace(i, i, KEYSPACE + "." + tokens.get(i).text());
        }
    }

    /** Makes {@code WHERE keyspace_name = 'system' AND table_name = 'cdc_local'} find the table where it is. */
    private void rewriteSchemaQuery() {
        if (!first("select"))
            return;
        int keyspaceName = literalOf("keyspace_name");
        int tableName = literalOf("table_name");
        if (keyspaceName >= 0 && tableName >= 0
            && isSystemTable(tokens.get(keyspaceName).value(), tokens.get(tableName).value()))
            replace(keyspaceName, keyspaceName, "'" + KEYSPACE + "'");
    }

    /** Makes {@code SELECT ... FROM system.cdc_streams WHERE ... stream_id = x} filter by a column that is null. */
    private void rewriteStreamFilter() {
        if (!first("select") || tokens.stream().noneMatch(token -> "cdc_streams".equals(token.identifier())))
            return;
        boolean filters = false;
        boolean inConditions = false;
        for (int i = 0; i < tokens.size(); i++) {
            inConditions |= tokens.get(i).is("where");
            if (inConditions && "stream_id".equals(tokens.get(i).identifier())) {
                replace(i, i, "no_stream_id");
                filters = true;
            }
        }
        int last = tokens.size() - 1;
        if (filters && !tokens.get(last).is("filtering"))
            replace(last, last, tokens.get(last).isSymbol(';') ? " ALLOW FILTERING" : tokens.get(last).text() + " ALLOW FILTERING");
    }

    /** Returns the index of the string that a column is compared with, or -1. */
    private int literalOf(String column) {
        for (int i = 0; i + 2 < tokens.size(); i++)
            if (tokens.get(i).is(column) && tokens.get(i + 1).isSymbol('=') && tokens.get(i + 2).kind() == Kind.STRING)
                return i + 2;
        return -1;
    }

    private static boolean isSystemTable(String keyspace, String table) {
        return keyspace != null && table != null && SYSTEM_TABLES.getOrDefault(keyspace, Set.of()).contains(table);
    }

    private void dropBypassCache() {
        for (int i = 0; i + 1 < tokens.size(); i++)
            if (tokens.get(i).is("bypass") && tokens.get(i + 1).is("cache"))
                replace(i, i + 1, "");
    }

    /** Removes {@code TIMEOUT x} from every USING clause, and the clause if it is empty then. */
    private void dropTimeouts() {
        for (int i = 0; i + 2 < tokens.size(); i++) {
            if (!tokens.get(i).is("using"))
                continue;
            StringBuilder kept = new StringBuilder();
            boolean found = false;
            int next = i;
            do {
                int name = next + 1;
                int value = name + 1;
                // A sign, and the colon of a named marker, belong to the value.
                while (value < tokens.size() && (tokens.get(value).isSymbol('-') || tokens.get(value).isSymbol(':')))
                    value++;
                if (value >= tokens.size())
                    return;
                if (tokens.get(name).is("timeout"))
                    found = true;
                else
                    kept.append(kept.length() == 0 ? "USING " : " AND ")
                        .append(cql, tokens.get(name).start(), tokens.get(value).end());
                next = value + 1;
            } while (next + 1 < tokens.size() && tokens.get(next).is("and") && isUsingAttribute(tokens.get(next + 1)));
            if (found)
                replace(i, next - 1, kept.toString());
        }
    }

    private static boolean isUsingAttribute(Token token) {
        return token.is("timeout") || token.is("ttl") || token.is("timestamp");
    }

    private void rewriteOptions() {
        boolean create = first("create");
        if (!create && !first("alter") || tokens.size() < 2)
            return;
        Token object = tokens.get(1);
        boolean table = object.is("table") || object.is("columnfamily");
        boolean view = object.is("materialized");
        if (!table && !view && !object.is("keyspace") && !object.is("schema"))
            return;
        int depth = 0;
        for (int i = 0; i + 2 < tokens.size(); i++) {
            Token token = tokens.get(i);
            if (token.isSymbol('(') || token.isSymbol('{'))
                depth++;
            else if (token.isSymbol(')') || token.isSymbol('}'))
                depth--;
            if (depth != 0 || !tokens.get(i + 1).isSymbol('=') || i == 0 || !startsAnOption(tokens.get(i - 1)))
                continue;
            boolean map = tokens.get(i + 2).isSymbol('{');
            if (token.is("cdc") && map && !object.is("keyspace"))
                takeCdcOptions(i, create, view);
            else if (SCYLLA_ONLY_OPTIONS.contains(String.valueOf(token.identifier())))
                dropOption(i, map ? closingBrace(i + 2) : i + 2);
        }
    }

    private boolean first(String word) {
        return !tokens.isEmpty() && tokens.get(0).is(word);
    }

    private static boolean startsAnOption(Token before) {
        return before.is("with") || before.is("and");
    }

    private void takeCdcOptions(int name, boolean create, boolean view) {
        if (view)
            throw new InvalidRequestException("Cannot enable CDC for a materialized view");
        int close = closingBrace(name + 2);
        Map<String, String> given = new LinkedHashMap<>();
        int i = name + 3;
        while (i < close) {
            String key = tokens.get(i).value();
            if (!tokens.get(i + 1).isSymbol(':'))
                return; // Not a map literal: the server's parser says so better.
            StringBuilder value = new StringBuilder();
            for (i += 2; i < close && !tokens.get(i).isSymbol(','); i++)
                value.append(tokens.get(i).value());
            given.put(key, value.toString());
            i++;
        }
        cdc = CdcOptions.of(given);
        if (!create && !cdc.enabledIsNamed())
            throw new InvalidRequestException("CDC options can only be altered together with the option \"enabled\"");
        // Cassandra's grammar accepts a map named "extensions" and ignores it. It keeps the option list well formed, and
        // the options in it keep prepared statements with different options apart.
        replace(name, close, "extensions = {'cdc': '" + hex(cdc) + "'}");
    }

    private static String hex(CdcOptions cdc) {
        return org.apache.cassandra.utils.ByteBufferUtil.bytesToHex(cdc.toBlob());
    }

    /** Removes one option with the AND before it, or else the AND after it, or else the WITH. */
    private void dropOption(int name, int last) {
        if (tokens.get(name - 1).is("and"))
            replace(name - 1, last, "");
        else if (last + 1 < tokens.size() && tokens.get(last + 1).is("and"))
            replace(name, last + 1, "");
        else
            replace(name - 1, last, "");
    }

    private int closingBrace(int open) {
        for (int i = open; i < tokens.size(); i++)
            if (tokens.get(i).isSymbol('}'))
                return i;
        throw new InvalidRequestException("The map that opens with \"" + tokens.get(open - 2).text() + " = {\" isn't closed");
    }

    private void replace(int firstToken, int lastToken, String text) {
        edits.put(tokens.get(firstToken).start(), new Edit(tokens.get(lastToken).end(), text));
    }

    private String result() {
        StringBuilder out = new StringBuilder();
        int position = 0;
        for (Map.Entry<Integer, Edit> edit : edits.entrySet()) {
            out.append(cql, position, edit.getKey()).append(edit.getValue().text());
            position = edit.getValue().end();
        }
        return out.append(cql, position, cql.length()).toString();
    }
}
