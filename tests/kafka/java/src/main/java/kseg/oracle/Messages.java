package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

import java.nio.ByteBuffer;
import java.util.Base64;

/** Messages from JSON to bytes, and to the JSON that Kafka prints of them, by the generated converters. */
final class Messages {
    private Messages() {
    }

    static void encode(JsonNode request, Answer answer) throws ReflectiveOperationException {
        ArrayNode found = answer.values.putArray("messages");
        for (JsonNode each : request.get("messages")) {
            Class<?> kind = Class.forName(each.get("class").asText());
            Class<?> converter = Class.forName(each.get("class").asText() + "JsonConverter");
            short version = (short) each.get("version").asInt();
            Object message = converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, each.get("json"), version);
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor((Message) message, version).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            Object text = converter.getMethod("write", kind, short.class).invoke(null, message, version);
            found.addArray().add(Base64.getEncoder().encodeToString(bytes)).add(text.toString());
        }
    }
}
