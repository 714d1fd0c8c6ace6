import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema.Field;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Debezium's transform ExtractNewRecordState, as a sink connector in Kafka Connect applies it.
 *
 * <p>Reads lines {@code key schema TAB key TAB value schema TAB value}, the schemas Avro's JSON, the bodies hexadecimal
 * and unframed, both value fields empty in a tombstone. Prints for each the name of the value's schema ({@code -} if it
 * has none), the value and the headers that the transform added, as JSON, tab-separated; {@code dropped} where it drops
 * the record. The transform's settings are the arguments, {@code name=value}.
 *
 * <p>Avro becomes Connect's types by the rules of Connect's AvroConverter: a record's schema is named by {@code
 * connect.name}, or by the record's full name.
 */
public final class ApplyDebezium {
    private ApplyDebezium() {}

    public static void main(String[] settings) throws IOException {
        Map<String, String> config = new HashMap<>();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            config.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        JsonConverter json = new JsonConverter();
        json.configure(Map.of("schemas.enable", "false"), false);
        try (ExtractNewRecordState<SinkRecord> transform = new ExtractNewRecordState<>()) {
            transform.configure(config);
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", -1);
                SchemaAndValue key = decode(parts[0], parts[1]);
                SchemaAndValue value = parts[2].isEmpty() ? SchemaAndValue.NULL : decode(parts[2], parts[3]);
                SinkRecord record =
                        new SinkRecord("topic", 0, key.schema(), key.value(), value.schema(), value.value(), 0);
                System.out.println(text(transform.apply(record), json));
            }
        }
    }

    private static String text(SinkRecord record, JsonConverter json) {
        if (record == null) {
            return "dropped";
        }
        byte[] value = json.fromConnectData("topic", record.valueSchema(), record.value());
        Map<String, Object> headers = new HashMap<>();
        for (Header header : record.headers()) {
            headers.put(header.key(), header.value());
        }
        byte[] told = json.fromConnectData("topic", null, headers);
        String name = record.valueSchema() == null ? "-" : record.valueSchema().name();
        return name + "\t" + (value == null ? "null" : new String(value, StandardCharsets.UTF_8)) + "\t"
                + new String(told, StandardCharsets.UTF_8);
    }

    private static SchemaAndValue decode(String schemaText, String hex) throws IOException {
        org.apache.avro.Schema avro = new org.apache.avro.Schema.Parser().parse(schemaText);
        byte[] body = HexFormat.of().parseHex(hex);
        Object datum =
                new GenericDatumReader<>(avro).read(null, DecoderFactory.get().binaryDecoder(body, null));
        Schema schema = schemaOf(avro, false);
        return new SchemaAndValue(schema, valueOf(schema, datum));
    }

    private static Schema schemaOf(org.apache.avro.Schema avro, boolean optional) {
        if (avro.isUnion()) {
            List<org.apache.avro.Schema> branches = avro.getTypes();
            if (branches.size() != 2 || branches.get(0).getType() != org.apache.avro.Schema.Type.NULL) {
                throw new IllegalArgumentException("no optional type: " + avro);
            }
            return schemaOf(branches.get(1), true);
        }
        SchemaBuilder builder = switch (avro.getType()) {
            case RECORD -> struct(avro);
            case ARRAY -> SchemaBuilder.array(schemaOf(avro.getElementType(), false));
            case STRING, ENUM -> SchemaBuilder.string();
            case BYTES, FIXED -> SchemaBuilder.bytes();
            case INT -> SchemaBuilder.int32();
            case LONG -> SchemaBuilder.int64();
            case FLOAT -> SchemaBuilder.float32();
            case DOUBLE -> SchemaBuilder.float64();
            case BOOLEAN -> SchemaBuilder.bool();
            default -> throw new IllegalArgumentException("no type of ours: " + avro);
        };
        String name = avro.getProp("connect.name");
        if (name != null) {
            builder.name(name);
        }
        if (avro.getObjectProp("connect.version") instanceof Integer version) {
            builder.version(version);
        }
        return (optional ? builder.optional() : builder).build();
    }

    private static SchemaBuilder struct(org.apache.avro.Schema avro) {
        SchemaBuilder builder = SchemaBuilder.struct();
        for (Field field : avro.getFields()) {
            builder.field(field.name(), schemaOf(field.schema(), false));
        }
        return avro.getProp("connect.name") == null ? builder.name(avro.getFullName()) : builder;
    }

    private static Object valueOf(Schema schema, Object datum) {
        if (datum == null) {
            return null;
        }
        if (Timestamp.LOGICAL_NAME.equals(schema.name())) {
            return new Date((Long) datum);
        }
        return switch (schema.type()) {
            case STRUCT -> {
                Struct struct = new Struct(schema);
                for (org.apache.kafka.connect.data.Field field : schema.fields()) {
                    struct.put(field, valueOf(field.schema(), ((GenericRecord) datum).get(field.name())));
                }
                struct.validate();
                yield struct;
            }
            case ARRAY -> ((List<?>) datum).stream().map(one -> valueOf(schema.valueSchema(), one)).toList();
            case STRING -> datum.toString();
            case BYTES -> datum instanceof GenericFixed fixed ? ByteBuffer.wrap(fixed.bytes()) : datum;
            default -> datum;
        };
    }
}
