package scyllacdcbridge.local;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import io.netty.buffer.ByteBuf;
import org.apache.cassandra.cql3.BatchQueryOptions;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.cql3.statements.BatchStatement;
import org.apache.cassandra.cql3.statements.schema.AlterSchemaStatement;
import org.apache.cassandra.cql3.statements.schema.CdcTableStatement;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.QueryState;
import org.apache.cassandra.transport.Dispatcher;
import org.apache.cassandra.transport.Message;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.messages.BatchMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.utils.MD5Digest;

/**
 * Lets clients use this Cassandra node like a ScyllaDB node, as far as CDC is concerned.
 *
 * <p>Named by {@code -Dcassandra.custom_query_handler_class}. Statements are rewritten by {@link StatementRewriter} and
 * then handled by the server's own processor. Test equipment: it imitates names and options, and writes no CDC log.
 */
public final class ScyllaQueryHandler implements QueryHandler {
    static {
        installBatchCodec();
    }

    private final QueryProcessor processor = QueryProcessor.instance;
    /** Options of prepared CREATE and ALTER TABLE statements: a prepared statement cannot hold them itself. */
    private final Map<MD5Digest, CdcOptions> preparedOptions = new ConcurrentHashMap<>();

    @Override
    public CQLStatement parse(String cql, QueryState state, QueryOptions options) {
        String keyspace = options.getKeyspace() == null ? state.getClientState().getRawKeyspace() : options.getKeyspace();
        StatementRewriter.Rewritten rewritten = StatementRewriter.rewrite(cql, keyspace);
        return withCdc(processor.parse(rewritten.cql(), state, options), rewritten.cdc());
    }

    @Override
    public ResultMessage process(CQLStatement statement, QueryState state, QueryOptions options,
                                 Map<String, ByteBuffer> customPayload, Dispatcher.RequestTime requestTime) {
        return processor.process(statement, state, options, customPayload, requestTime);
    }

    @Override
    public ResultMessage.Prepared prepare(String cql, ClientState state, Map<String, ByteBuffer> customPayload) {
        StatementRewriter.Rewritten rewritten = StatementRewriter.rewrite(cql, state.getRawKeyspace());
        ResultMessage.Prepared prepared = processor.prepare(rewritten.cql(), state, customPayload);
        if (rewritten.cdc() != null)
            preparedOptions.put(prepared.statementId, rewritten.cdc());
        return prepared;
    }

    @Override
    public Prepared getPrepared(MD5Digest id) {
        Prepared prepared = processor.getPrepared(id);
        CdcOptions cdc = preparedOptions.get(id);
        if (prepared == null || cdc == null)
            return prepared;
        return new Prepared(withCdc(prepared.statement, cdc), prepared.rawCQLStatement, prepared.fullyQualified, prepared.keyspace);
    }

    @Override
    public ResultMessage processPrepared(CQLStatement statement, QueryState state, QueryOptions options,
                                         Map<String, ByteBuffer> customPayload, Dispatcher.RequestTime requestTime) {
        return processor.processPrepared(statement, state, options, customPayload, requestTime);
    }

    @Override
    public ResultMessage processBatch(BatchStatement statement, QueryState state, BatchQueryOptions options,
                                      Map<String, ByteBuffer> customPayload, Dispatcher.RequestTime requestTime) {
        return processor.processBatch(statement, state, options, customPayload, requestTime);
    }

    private static CQLStatement withCdc(CQLStatement statement, CdcOptions cdc) {
        return cdc == null ? statement : new CdcTableStatement((AlterSchemaStatement) statement, cdc);
    }

    /** The server parses BATCH frames before it calls a query handler, so their texts are rewritten while decoding. */
    private static void installBatchCodec() {
        Message.Codec<BatchMessage> original = BatchMessage.codec;
        Message.Codec<BatchMessage> rewriting = new Message.Codec<>() {
            @Override
            public BatchMessage decode(ByteBuf body, ProtocolVersion version) {
                BatchMessage message = original.decode(body, version);
                List<Object> queries = message.queryOrIdList;
                queries.replaceAll(query -> query instanceof String cql
                    ? StatementRewriter.rewrite(cql, message.options.getKeyspace()).cql()
                    : query);
                return message;
            }

            @Override
            public void encode(BatchMessage message, ByteBuf dest, ProtocolVersion version) {
                original.encode(message, dest, version);
            }

            @Override
            public int encodedSize(BatchMessage message, ProtocolVersion version) {
                return original.encodedSize(message, version);
            }
        };
        try {
            Message.Type.BATCH.unsafeSetCodec(rewriting);
        } catch (NoSuchFieldException | IllegalAccessException e) {
            throw new IllegalStateException("Cannot install the codec for BATCH frames", e);
        }
    }
}
