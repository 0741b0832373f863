package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import com.sohu.jafka.common.ErrorMapping;
import com.sohu.jafka.log.FixedSizeRollingStrategy;
import com.sohu.jafka.log.Log;
import com.sohu.jafka.message.ByteBufferMessageSet;
import com.sohu.jafka.message.CompressionCodec;
import com.sohu.jafka.message.Message;
import com.sohu.jafka.message.MessageAndOffset;
import com.sohu.jafka.network.MessageSetSend;
import com.sohu.jafka.network.MultiMessageSetSend;
import com.sohu.jafka.network.Send;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** A 0.7 log through Jafka, its published Java port. Its files end in .jafka: the caller renames a copy. */
final class Ancient {
    private Ancient() {
    }

    /** Request: dir, recover, roll_bytes, max_message_bytes, steps. Answer: segments, end_offset, found (a line per step). */
    static void run(JsonNode request, Answer answer) throws IOException {
        File directory = new File(request.get("dir").asText());
        Log log = new Log(directory, 0, new FixedSizeRollingStrategy(request.path("roll_bytes").asInt(1 << 29)), 1,
            request.path("recover").asBoolean(true), request.path("max_message_bytes").asInt(1 << 20));
        try {
            ArrayNode found = answer.values.putArray("found");
            for (JsonNode step : request.path("steps")) {
                Lookups.attempt(found, line -> step(log, step, line, answer));
            }
            answer.values.put("segments", log.getNumberOfSegments());
            answer.values.put("end_offset", log.getTotalAddressingOffset());
        } finally {
            log.close();
        }
    }

    private static void step(Log log, JsonNode step, ObjectNode line, Answer answer) throws IOException {
        switch (step.get("what").asText()) {
            case "read" -> line.put("part", answer.part(sent(read(log, step))));
            case "multi" -> {
                List<MessageSetSend> sends = new ArrayList<>();
                for (JsonNode one : step.get("reads")) {
                    sends.add(read(log, one));
                }
                line.put("part", answer.part(sent(new MultiMessageSetSend(sends))));
            }
            case "append" -> {
                ArrayNode offsets = line.putArray("offsets");
                log.append(messages(step)).forEach(offsets::add);
            }
            case "flush" -> log.flush();
            default -> throw new IllegalArgumentException("no such step: " + step);
        }
    }

    private static MessageSetSend read(Log log, JsonNode step) throws IOException {
        return new MessageSetSend(log.read(step.get("offset").asLong(), step.get("max_bytes").asInt()));
    }

    /** What would go over the wire. The sends want a channel that gathers; a temporary file is one. */
    private static byte[] sent(Send send) throws IOException {
        Path file = Files.createTempFile("sent", null);
        try {
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                send.writeCompletely(channel);
            }
            return Files.readAllBytes(file);
        } finally {
            Files.delete(file);
        }
    }

    private static ByteBufferMessageSet messages(JsonNode step) {
        List<Message> messages = new ArrayList<>();
        step.get("payloads").forEach(payload -> messages.add(new Message(Base64.getDecoder().decode(payload.asText()))));
        boolean gzip = step.path("codec").asText("none").equals("gzip");
        CompressionCodec codec = gzip ? CompressionCodec.GZIPCompressionCodec : CompressionCodec.NoCompressionCodec;
        return new ByteBufferMessageSet(codec, messages.toArray(new Message[0]));
    }

    /** Every message of one file as the iterator returns it: [next_offset, valid, crc, payload in base64]. */
    static void file(JsonNode request, Answer answer) throws IOException {
        byte[] bytes = Files.readAllBytes(Path.of(request.get("file").asText()));
        long base = request.get("base_offset").asLong();
        ArrayNode found = answer.values.putArray("messages");
        answer.values.putNull("exception");
        try {
            for (MessageAndOffset at : new ByteBufferMessageSet(ByteBuffer.wrap(bytes), base, ErrorMapping.NoError)) {
                ByteBuffer payload = at.message.payload();
                byte[] copy = new byte[payload.remaining()];
                payload.get(copy);
                found.addArray().add(at.offset).add(at.message.isValid()).add(at.message.checksum())
                    .add(Base64.getEncoder().encodeToString(copy));
            }
        } catch (RuntimeException error) {
            Answer.describe(answer.values, error);
        }
    }
}
