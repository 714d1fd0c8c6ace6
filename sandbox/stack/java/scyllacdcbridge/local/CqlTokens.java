package scyllacdcbridge.local;

import java.util.ArrayList;
import java.util.List;

/**
 * Splits a CQL text into tokens without spaces and comments.
 *
 * <p>It implements the lexical rules that prevent taking the inside of a literal, a quoted name or a comment for a
 * keyword. If the text ends inside one of them, the last token reaches to the end of the text, and the server's own
 * parser reports the error.
 */
final class CqlTokens {
    enum Kind { WORD, QUOTED_NAME, STRING, SYMBOL }

    /** One token: its text as written, and its position in the statement (end exclusive). */
    record Token(Kind kind, String text, int start, int end) {
        boolean is(String lowerCaseWord) {
            return kind == Kind.WORD && text.equalsIgnoreCase(lowerCaseWord);
        }

        boolean isSymbol(char symbol) {
            return kind == Kind.SYMBOL && text.charAt(0) == symbol;
        }

        /** The identifier of this token as the server reads it, or null if the token is no identifier. */
        String identifier() {
            return switch (kind) {
                case WORD -> text.toLowerCase(java.util.Locale.ROOT);
                case QUOTED_NAME -> unquoted('"');
                default -> null;
            };
        }

        /** The value of a string literal or of a bare word. */
        String value() {
            if (kind != Kind.STRING)
                return text;
            return text.startsWith("$$") ? text.substring(2, Math.max(2, text.length() - 2)) : unquoted('\'');
        }

        private String unquoted(char quote) {
            String twice = "" + quote + quote;
            return text.substring(1, Math.max(1, text.length() - 1)).replace(twice, "" + quote);
        }
    }

    private CqlTokens() {
    }

    static List<Token> of(String cql) {
        List<Token> tokens = new ArrayList<>();
        int position = 0;
        while (position < cql.length()) {
            char c = cql.charAt(position);
            int end;
            if (Character.isWhitespace(c)) {
                position++;
                continue;
            }
            if (cql.startsWith("--", position) || cql.startsWith("//", position)) {
                position = lineEnd(cql, position);
                continue;
            }
            if (cql.startsWith("/*", position)) {
                position = after(cql, "*/", position + 2);
                continue;
            }
            if (cql.startsWith("$$", position)) {
                end = after(cql, "$$", position + 2);
                tokens.add(new Token(Kind.STRING, cql.substring(position, end), position, end));
            } else if (c == '\'' || c == '"') {
                end = quoteEnd(cql, position, c);
                Kind kind = c == '"' ? Kind.QUOTED_NAME : Kind.STRING;
                tokens.add(new Token(kind, cql.substring(position, end), position, end));
            } else if (isWordPart(c)) {
                end = position;
                while (end < cql.length() && isWordPart(cql.charAt(end)))
                    end++;
                tokens.add(new Token(Kind.WORD, cql.substring(position, end), position, end));
            } else {
                end = position + 1;
                tokens.add(new Token(Kind.SYMBOL, cql.substring(position, end), position, end));
            }
            position = end;
        }
        return tokens;
    }

    private static boolean isWordPart(char c) {
        return c == '_' || Character.isLetterOrDigit(c);
    }

    private static int lineEnd(String cql, int from) {
        int position = from;
        while (position < cql.length() && cql.charAt(position) != '\n' && cql.charAt(position) != '\r')
            position++;
        return position;
    }

    private static int after(String cql, String mark, int from) {
        int found = cql.indexOf(mark, from);
        return found < 0 ? cql.length() : found + mark.length();
    }

    private static int quoteEnd(String cql, int from, char quote) {
        int position = from + 1;
        while (position < cql.length()) {
            if (cql.charAt(position) == quote) {
                // A doubled quote stands for itself and does not end the literal.
                if (position + 1 >= cql.length() || cql.charAt(position + 1) != quote)
                    return position + 1;
                position++;
            }
            position++;
        }
        return cql.length();
    }
}
