package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;

/**
 * The real Kafka as a judge that stays awake: one JSON object a line on stdin ("do" names the request), one framed answer
 * on stdout (see {@link Answer#send}). A request that throws is answered with the exception; the process lives on.
 */
public final class Oracle {
    private interface Request {
        void answer(JsonNode request, Answer answer) throws Exception;
    }

    private static final Map<String, Request> REQUESTS = Map.ofEntries(
        Map.entry("dump", Dump::run),
        Map.entry("records", Records::decode),
        Map.entry("offset_index", Lookups::offsetIndex),
        Map.entry("time_index", Lookups::timeIndex),
        Map.entry("file", Lookups::file),
        Map.entry("segment", Lookups::segment),
        Map.entry("epochs", Lookups::epochs),
        Map.entry("partition", Partition::run),
        Map.entry("log_dirs", LogDirs::run),
        Map.entry("make", Maker::make),
        Map.entry("messages", Messages::encode),
        Map.entry("format", Formatters::format),
        Map.entry("compress", Codecs::compress),
        Map.entry("decompress", Codecs::decompress),
        Map.entry("ancient", Ancient::run),
        Map.entry("ancient_file", Ancient::file),
        Map.entry("utf8", Oracle::utf8),
        Map.entry("partitions_for_keys", Oracle::partitions)
    );

    private Oracle() {
    }

    public static void main(String[] args) throws IOException {
        InputStream in = new BufferedInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        System.setOut(System.err); // nothing but answers may reach the real stdout
        for (byte[] line = line(in); line != null; line = line(in)) {
            answer(line).send(out);
        }
        System.exit(0); // logs that were loaded leave threads behind, which would keep the process alive
    }

    private static Answer answer(byte[] line) {
        Answer answer = new Answer();
        try {
            JsonNode request = Answer.JSON.readTree(line);
            Request handler = REQUESTS.get(request.get("do").asText());
            if (handler == null) {
                throw new IllegalArgumentException("no such request: " + request.get("do"));
            }
            handler.answer(request, answer);
            answer.values.put("ok", true);
            return answer;
        } catch (Throwable error) {
            Answer failed = new Answer();
            failed.values.put("ok", false);
            Answer.describe(failed.values, error);
            return failed;
        }
    }

    private static byte[] line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int b = in.read(); b != '\n'; b = in.read()) {
            if (b < 0) {
                return null;
            }
            line.write(b);
        }
        return line.toByteArray();
    }

    /** Bytes as Java reads them as UTF-8 and writes them again: what is malformed comes back replaced. */
    private static void utf8(JsonNode request, Answer answer) {
        byte[] bytes = Base64.getDecoder().decode(request.get("bytes").asText());
        answer.part(new String(bytes, StandardCharsets.UTF_8).getBytes(StandardCharsets.UTF_8));
    }

    /** Where the producer puts records with these keys in a topic of "count" partitions. */
    private static void partitions(JsonNode request, Answer answer) {
        ArrayNode found = answer.values.putArray("partitions");
        for (JsonNode key : request.get("keys")) {
            byte[] bytes = Base64.getDecoder().decode(key.asText());
            found.add(BuiltInPartitioner.partitionForKey(bytes, request.get("count").asInt()));
        }
    }
}
