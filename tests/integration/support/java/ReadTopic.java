import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.avro.Conversions;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer as a Java program would be one: kafka-clients, read_committed, and Apache Avro's GenericDatumReader with
 * the writer's schema from the registry.
 *
 * <p>Reads topics from their beginning to their end and prints one JSON object for each record:
 * {@code {"topic", "partition", "offset", "key", "value"}}. Key and value are null where Kafka's are, else the datum
 * with its runtime type: {@code {"int": 1}}, {@code {"long": 1}}, {@code {"float": bits}}, {@code {"double": bits}},
 * {@code {"string": text}}, {@code {"uuid": text}}, {@code {"bytes": hex}}, {@code {"fixed": hex}}, {@code {"enum":
 * symbol}}, {@code {"record": full name, "fields": {...}}}, {@code {"map": {...}}}; an array, a boolean and null are
 * JSON's own. Bits are IEEE 754's in hexadecimal, because JSON has neither infinities nor NaN.
 *
 * <p>The exit status is 1, with the reason on the error stream, if the time is up or anything can't be read.
 */
public final class ReadTopic {
    private static final byte MAGIC = 0;
    private static final int FRAME_BYTES = 5;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration REQUEST = Duration.ofSeconds(10);

    private final String registry;
    private final GenericData model = new GenericData();
    private final HttpClient http = HttpClient.newHttpClient();
    private final ObjectMapper mapper = new ObjectMapper();
    private final Map<Integer, GenericDatumReader<Object>> readers = new HashMap<>();
    private final JsonGenerator json;

    private ReadTopic(String registry, JsonGenerator json) {
        this.registry = registry;
        this.json = json;
        // Off by default in Java; with it, a string that is marked as a UUID must be one.
        model.addLogicalTypeConversion(new Conversions.UUIDConversion());
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 4) {
            System.err.println("usage: ReadTopic <bootstrap servers> <registry URL> <timeout in s> <topic>=<records>...");
            System.exit(2);
        }
        Map<String, Integer> wanted = new TreeMap<>();
        for (String argument : List.of(arguments).subList(3, arguments.length)) {
            int equals = argument.lastIndexOf('=');
            wanted.put(argument.substring(0, equals), Integer.parseInt(argument.substring(equals + 1)));
        }
        long deadline = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[2])).toNanos();
        JsonGenerator json =
                new JsonFactory().createGenerator(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        json.setRootValueSeparator(null);
        new ReadTopic(arguments[1], json).read(arguments[0], wanted, deadline);
        json.close();
    }

    /** Print every record of the topics up to their ends, and until there are as many as wanted of each. */
    private void read(String bootstrapServers, Map<String, Integer> wanted, long deadline) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrapServers);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("allow.auto.create.topics", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = wanted.keySet().stream()
                    .flatMap(topic -> consumer.partitionsFor(topic, REQUEST).stream())
                    .map(info -> new TopicPartition(info.topic(), info.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<String, Integer> missing = new TreeMap<>(wanted);
            while (missing.values().stream().anyMatch(count -> count > 0) || !atEnd(consumer, partitions)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("time is up; records still missing: " + missing);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    missing.merge(record.topic(), -1, Integer::sum);
                    print(record);
                }
            }
        }
    }

    private static boolean atEnd(KafkaConsumer<?, ?> consumer, Collection<TopicPartition> partitions) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions, REQUEST);
        return partitions.stream().allMatch(one -> consumer.position(one, REQUEST) >= ends.get(one));
    }

    private void print(ConsumerRecord<byte[], byte[]> record) throws Exception {
        json.writeStartObject();
        json.writeStringField("topic", record.topic());
        json.writeNumberField("partition", record.partition());
        json.writeNumberField("offset", record.offset());
        for (boolean isKey : new boolean[] {true, false}) {
            byte[] framed = isKey ? record.key() : record.value();
            json.writeFieldName(isKey ? "key" : "value");
            try {
                write(framed == null ? null : decode(framed));
            } catch (IOException | RuntimeException error) {
                String what = isKey ? "key" : "value";
                throw new IllegalStateException(
                        "the " + what + " of " + record.topic() + "-" + record.partition() + " at " + record.offset()
                                + " can't be read", error);
            }
        }
        json.writeEndObject();
        json.writeRaw('\n');
    }

    private Object decode(byte[] framed) throws IOException {
        ByteBuffer frame = ByteBuffer.wrap(framed);
        if (framed.length < FRAME_BYTES || frame.get() != MAGIC) {
            throw new IOException("not framed for a registry: " + HexFormat.of().formatHex(framed));
        }
        GenericDatumReader<Object> reader = readers.computeIfAbsent(frame.getInt(), this::readerOf);
        ByteArrayInputStream body = new ByteArrayInputStream(framed, FRAME_BYTES, framed.length - FRAME_BYTES);
        BinaryDecoder decoder = DecoderFactory.get().directBinaryDecoder(body, null);
        Object datum = reader.read(null, decoder);
        if (body.available() > 0) {
            throw new IOException(body.available() + " bytes are left behind the datum");
        }
        return datum;
    }

    private GenericDatumReader<Object> readerOf(int schemaId) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + schemaId))
                    .timeout(REQUEST)
                    .build();
            HttpResponse<byte[]> answer = http.send(request, HttpResponse.BodyHandlers.ofByteArray());
            if (answer.statusCode() != 200) {
                throw new IOException("the registry answers " + answer.statusCode() + " for schema " + schemaId);
            }
            String text = mapper.readTree(answer.body()).get("schema").textValue();
            // Names as the specification allows them; the default of 1.12 is laxer.
            Schema schema = new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(text);
            return new GenericDatumReader<>(schema, schema, model);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    private void write(Object datum) throws IOException {
        if (datum == null) {
            json.writeNull();
        } else if (datum instanceof Boolean truth) {
            json.writeBoolean(truth);
        } else if (datum instanceof Collection<?> array) {
            json.writeStartArray();
            for (Object item : array) {
                write(item);
            }
            json.writeEndArray();
        } else {
            json.writeStartObject();
            writeTagged(datum);
            json.writeEndObject();
        }
    }

    private void writeTagged(Object datum) throws IOException {
        if (datum instanceof Integer number) {
            json.writeNumberField("int", number);
        } else if (datum instanceof Long number) {
            json.writeNumberField("long", number);
        } else if (datum instanceof Float number) {
            json.writeStringField("float", HexFormat.of().toHexDigits(Float.floatToRawIntBits(number)));
        } else if (datum instanceof Double number) {
            json.writeStringField("double", HexFormat.of().toHexDigits(Double.doubleToRawLongBits(number)));
        } else if (datum instanceof CharSequence text) {
            json.writeStringField("string", text.toString());
        } else if (datum instanceof UUID uuid) {
            json.writeStringField("uuid", uuid.toString());
        } else if (datum instanceof ByteBuffer bytes) {
            byte[] content = new byte[bytes.remaining()];
            bytes.duplicate().get(content);
            json.writeStringField("bytes", HexFormat.of().formatHex(content));
        } else if (datum instanceof GenericFixed fixed) {
            json.writeStringField("fixed", HexFormat.of().formatHex(fixed.bytes()));
        } else if (datum instanceof GenericEnumSymbol<?> symbol) {
            json.writeStringField("enum", symbol.toString());
        } else if (datum instanceof GenericRecord record) {
            json.writeStringField("record", record.getSchema().getFullName());
            json.writeObjectFieldStart("fields");
            for (Schema.Field field : record.getSchema().getFields()) {
                json.writeFieldName(field.name());
                write(record.get(field.pos()));
            }
            json.writeEndObject();
        } else if (datum instanceof Map<?, ?> map) {
            json.writeObjectFieldStart("map");
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                json.writeFieldName(entry.getKey().toString());
                write(entry.getValue());
            }
            json.writeEndObject();
        } else {
            throw new IOException("Avro gave a " + datum.getClass().getName());
        }
    }
}
