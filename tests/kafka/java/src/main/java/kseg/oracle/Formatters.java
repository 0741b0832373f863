package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** What a formatter of the console consumer prints of each record, or the message of what it throws. */
final class Formatters {
    private Formatters() {
    }

    static void format(JsonNode request, Answer answer) throws ReflectiveOperationException {
        ArrayNode found = answer.values.putArray("found");
        Class<?> kind = Class.forName(request.get("class").asText());
        try (MessageFormatter formatter = (MessageFormatter) kind.getConstructor().newInstance()) {
            long offset = 0;
            for (JsonNode each : request.get("records")) {
                ConsumerRecord<byte[], byte[]> record =
                    new ConsumerRecord<>("topic", 0, offset++, bytes(each.get(0)), bytes(each.get(1)));
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                String error = null;
                try (PrintStream stream = new PrintStream(out, false, StandardCharsets.UTF_8)) {
                    formatter.writeTo(record, stream);
                } catch (RuntimeException thrown) {
                    error = String.valueOf(thrown.getMessage());
                }
                found.addArray().add(out.toString(StandardCharsets.UTF_8)).add(error);
            }
        }
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
