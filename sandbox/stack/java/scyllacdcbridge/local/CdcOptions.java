package scyllacdcbridge.local;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import org.apache.cassandra.exceptions.ConfigurationException;

/**
 * The options of {@code WITH cdc = {...}}, checked and stored the way ScyllaDB does.
 *
 * <p>An empty map stays empty. Otherwise, missing options get their defaults. Keys and values are case-insensitive.
 * ScyllaDB 2026.2 has two options more, for its own use, which it keeps if they are true.
 */
public final class CdcOptions {
    private static final String ENABLED = "enabled";
    private static final String TTL = "ttl";
    private static final Set<String> SINCE_2026_2 = Set.of("enable_requested", "tablet_merge_blocked");
    private static final boolean HAS_THEM = "2026.2".equals(System.getProperty("scyllacdcbridge.scylla_version"));

    /** Sorted by key: the order of the entries in the blob. */
    private final TreeMap<String, String> options = new TreeMap<>();
    private final boolean enabledIsNamed;

    private CdcOptions(Map<String, String> given) {
        enabledIsNamed = given.keySet().stream().anyMatch(key -> key.equalsIgnoreCase(ENABLED));
        if (given.isEmpty())
            return;
        options.putAll(Map.of(ENABLED, "false", "preimage", "false", "postimage", "false", "delta", "full", TTL, "86400"));
        given.forEach((key, value) -> options.put(known(key), normal(known(key), value)));
        options.keySet().removeIf(key -> SINCE_2026_2.contains(key) && options.get(key).equals("false"));
    }

    /** @throws ConfigurationException for an unknown option or an invalid value */
    public static CdcOptions of(Map<String, String> given) {
        return new CdcOptions(given);
    }

    public boolean enabled() {
        return "true".equals(options.get(ENABLED));
    }

    /** Whether the statement has the option "enabled", which ALTER TABLE requires. */
    public boolean enabledIsNamed() {
        return enabledIsNamed;
    }

    /** The bytes of {@code system_schema.tables.extensions['cdc']}. */
    public ByteBuffer toBlob() {
        int size = Integer.BYTES;
        for (Map.Entry<String, String> entry : options.entrySet())
            size += 2 * Integer.BYTES + utf8(entry.getKey()).length + utf8(entry.getValue()).length;
        ByteBuffer blob = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        blob.putInt(options.size());
        for (Map.Entry<String, String> entry : options.entrySet()) {
            put(blob, entry.getKey());
            put(blob, entry.getValue());
        }
        blob.flip();
        return blob.order(ByteOrder.BIG_ENDIAN);
    }

    /** Whether CDC is enabled in a blob of {@link #toBlob}; null is allowed. */
    public static boolean isEnabled(ByteBuffer blob) {
        if (blob == null)
            return false;
        ByteBuffer in = blob.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        for (int left = in.getInt(); left > 0; left--) {
            String key = get(in);
            String value = get(in);
            if (key.equals(ENABLED))
                return value.equals("true");
        }
        return false;
    }

    private String known(String key) {
        String name = key.toLowerCase(Locale.ROOT);
        if (!options.containsKey(name) && !(HAS_THEM && SINCE_2026_2.contains(name)))
            throw new ConfigurationException("Invalid CDC option: " + key);
        return name;
    }

    private static String normal(String name, String value) {
        String text = value.toLowerCase(Locale.ROOT);
        String result = switch (name) {
            case TTL -> ttl(value);
            case "delta" -> text.equals("full") || text.equals("keys") ? text : null;
            case "preimage" -> text.equals("full") ? text : flag(text);
            default -> flag(text);
        };
        if (result == null)
            throw new ConfigurationException("Invalid value for CDC option \"" + name + "\": " + value);
        return result;
    }

    private static String flag(String text) {
        return switch (text) {
            case "true", "1" -> "true";
            case "false", "0" -> "false";
            default -> null;
        };
    }

    private static String ttl(String value) {
        try {
            int seconds = Integer.parseInt(value.trim());
            if (seconds < 0)
                throw new ConfigurationException("Invalid CDC option: ttl must be >= 0");
            return Integer.toString(seconds);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void put(ByteBuffer blob, String text) {
        byte[] bytes = utf8(text);
        blob.putInt(bytes.length).put(bytes);
    }

    private static String get(ByteBuffer in) {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
