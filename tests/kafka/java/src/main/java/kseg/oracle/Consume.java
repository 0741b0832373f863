package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * What the real consumer is given of damaged partitions by a reader that does not give up: it reads each partition from the
 * beginning, one record at a time, seeks to the first offset of every batch and to the last one of those that it was not given
 * whole (index entries have the last one), and, where a read ended with an exception, to each offset in that batch.
 *
 * One JSON object on stdin: "bootstrap", "partitions" [{"topic", "partition", "batches" [[first, last, values], …]}],
 * where values (in base64) may be left out. On stdout one line for each partition: "records" [[offset, value in base64], …]
 * and "exceptions", the messages.
 */
public final class Consume {
    private static final int READERS = 6;
    private static final Duration POLL = Duration.ofMillis(50);
    private static final int STALLED_FETCHES = 5; // answered without a record; the first may be of the offset before
    private static final long LIMIT_MS = 120_000;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<Metric> fetches;
    private final TopicPartition place;
    private final Map<Long, Set<String>> found = new TreeMap<>();
    private final List<String> exceptions = new ArrayList<>();

    private Consume(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place) {
        this.consumer = consumer;
        fetches = new ArrayList<>(consumer.metrics().values());
        fetches.removeIf(metric -> !metric.metricName().name().equals("fetch-total"));
        this.place = place;
    }

    public static void main(String[] args) throws Exception {
        JsonNode request = Answer.JSON.readTree(System.in);
        ExecutorService readers = Executors.newFixedThreadPool(READERS);
        // a reader takes the next partition when it has read one: most of the time of a new consumer goes into its construction
        Queue<JsonNode> left = new ConcurrentLinkedQueue<>();
        request.get("partitions").forEach(left::add);
        List<Future<List<ObjectNode>>> answers = new ArrayList<>();
        for (int reader = 0; reader < READERS; reader++) {
            answers.add(readers.submit(() -> read(request.get("bootstrap").asText(), left)));
        }
        try {
            for (Future<List<ObjectNode>> each : answers) {
                for (ObjectNode answer : each.get()) {
                    System.out.println(Answer.JSON.writeValueAsString(answer));
                }
            }
        } finally {
            readers.shutdownNow();
        }
    }

    private static List<ObjectNode> read(String bootstrap, Queue<JsonNode> left) {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", bootstrap,
            "enable.auto.commit", false,
            "auto.offset.reset", "none",
            "fetch.max.wait.ms", 20,
            "max.poll.records", 1,
            "retry.backoff.ms", 20,
            "reconnect.backoff.ms", 20);
        List<ObjectNode> answers = new ArrayList<>();
        JsonNode partition = left.poll();
        if (partition == null) {
            return answers;
        }
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (; partition != null; partition = left.poll()) {
                TopicPartition place = new TopicPartition(partition.get("topic").asText(), partition.get("partition").asInt());
                Consume reader = new Consume(consumer, place);
                reader.readAll(partition.get("batches"));
                answers.add(reader.answer(partition));
            }
        }
        return answers;
    }

    private void readAll(JsonNode batches) {
        consumer.assign(List.of(place));
        long begin = bound(true);
        long end = bound(false);
        readFrom(begin, end);
        for (JsonNode batch : batches) {
            long first = batch.get(0).asLong();
            long last = batch.get(1).asLong();
            boolean threw = first >= begin && first < end && readFrom(first, end);
            boolean isGiven = isGiven(batch);
            for (long offset = threw ? first + 1 : last; offset <= last && offset >= begin && offset < end; offset++) {
                if (threw ? !found.containsKey(offset) : !isGiven) {
                    readFrom(offset, end);
                }
            }
        }
    }

    /** By what the records hold: another batch may have come for an offset. */
    private boolean isGiven(JsonNode batch) {
        Set<String> values = new TreeSet<>();
        found.values().forEach(values::addAll);
        for (JsonNode value : batch.path(2)) {
            if (!values.contains(value.asText())) {
                return false;
            }
        }
        return found.containsKey(batch.get(1).asLong());
    }

    private long bound(boolean isBegin) {
        Map<TopicPartition, Long> bounds =
            isBegin ? consumer.beginningOffsets(List.of(place)) : consumer.endOffsets(List.of(place));
        return bounds.get(place);
    }

    /** Up to the end, to where nothing comes any more, to what was given before, or to an exception: then true. */
    private boolean readFrom(long offset, long end) {
        consumer.unsubscribe(); // else it may go on with what it has fetched for the offset before
        consumer.assign(List.of(place));
        consumer.seek(place, offset);
        double answered = answeredFetches();
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        while (answeredFetches() - answered < STALLED_FETCHES) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no answer to a fetch from " + offset + " of " + place);
            }
            try {
                boolean isNew = false;
                boolean isEmpty = true;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    isEmpty = false;
                    isNew |= found.computeIfAbsent(record.offset(), at -> new TreeSet<>()).add(text(record.value()));
                    answered = answeredFetches();
                }
                if (isEmpty ? consumer.position(place) >= end : !isNew) {
                    return false;
                }
            } catch (TimeoutException slow) {
                throw slow;
            } catch (RuntimeException thrown) {
                exceptions.add(offset + ": " + thrown);
                return true;
            }
        }
        exceptions.add(offset + ": stalled");
        return false;
    }

    private double answeredFetches() {
        return fetches.stream().mapToDouble(metric -> (Double) metric.metricValue()).sum();
    }

    private static String text(byte[] value) {
        return Base64.getEncoder().encodeToString(value == null ? new byte[0] : value);
    }

    private ObjectNode answer(JsonNode partition) {
        ObjectNode answer = Answer.JSON.createObjectNode();
        answer.put("topic", place.topic());
        answer.put("partition", place.partition());
        ArrayNode records = answer.putArray("records");
        found.forEach((offset, values) -> values.forEach(value -> records.addArray().add((long) offset).add(value)));
        exceptions.forEach(answer.putArray("exceptions")::add);
        return answer;
    }
}
