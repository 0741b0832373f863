package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/** Questions to single files: indexes, a segment, the epoch cache. Each takes many targets and answers them in order. */
final class Lookups {
    private Lookups() {
    }

    /** Answer: entries [[offset, position], …], found (one pair per target), and what the sanity check throws. */
    static void offsetIndex(JsonNode request, Answer answer) throws IOException {
        File file = new File(request.get("file").asText());
        OffsetIndex index = new OffsetIndex(file, LogFileUtils.offsetFromFile(file), -1, false);
        try {
            ArrayNode entries = answer.values.putArray("entries");
            for (int n = 0; n < index.entries(); n++) {
                pair(entries, index.entry(n));
            }
            ArrayNode found = answer.values.putArray("found");
            request.path("targets").forEach(target -> pair(found, index.lookup(target.asLong())));
            sanity(answer.values, index::sanityCheck);
        } finally {
            index.closeHandler(); // not close(): that trims the file
        }
    }

    /** Answer: entries [[timestamp, offset], …], found (one pair per target), and what the sanity check throws. */
    static void timeIndex(JsonNode request, Answer answer) throws IOException {
        File file = new File(request.get("file").asText());
        TimeIndex index = new TimeIndex(file, LogFileUtils.offsetFromFile(file), -1, false);
        try {
            ArrayNode entries = answer.values.putArray("entries");
            for (int n = 0; n < index.entries(); n++) {
                pair(entries, index.entry(n));
            }
            ArrayNode found = answer.values.putArray("found");
            request.path("targets").forEach(target -> pair(found, index.lookup(target.asLong())));
            sanity(answer.values, index::sanityCheck);
        } finally {
            index.closeHandler();
        }
    }

    private static void pair(ArrayNode into, OffsetPosition entry) {
        into.addArray().add(entry.offset()).add(entry.position());
    }

    private static void pair(ArrayNode into, TimestampOffset entry) {
        into.addArray().add(entry.timestamp()).add(entry.offset());
    }

    private static void sanity(ObjectNode into, Runnable check) {
        into.putNull("insane");
        try {
            check.run();
        } catch (RuntimeException error) {
            into.put("insane", error.getMessage());
        }
    }

    /** Questions to the records of one file, without any index: "ask" is a list of objects with a "what". */
    static void file(JsonNode request, Answer answer) throws IOException {
        try (FileRecords records = FileRecords.open(new File(request.get("file").asText()), false)) {
            ArrayNode found = answer.values.putArray("found");
            for (JsonNode ask : request.get("ask")) {
                int position = ask.path("position").asInt(0);
                attempt(found, line -> {
                    switch (ask.get("what").asText()) {
                        case "offset" -> position(line, records.searchForOffsetFromPosition(ask.get("offset").asLong(), position));
                        case "timestamp" -> time(line, Optional.ofNullable(records.searchForTimestamp(
                            ask.get("timestamp").asLong(), position, ask.path("start_offset").asLong(0))));
                        case "largest_timestamp" -> time(line, Optional.of(records.largestTimestampAfter(position)));
                        default -> throw new IllegalArgumentException("no such question: " + ask);
                    }
                });
            }
        }
    }

    /** Questions to a segment (log and indexes) of a directory; the segment is opened for writing, so give a copy. */
    static void segment(JsonNode request, Answer answer) throws IOException {
        File directory = new File(request.get("dir").asText());
        try (Clock clock = new Clock(request.path("now").asLong(0))) {
            LogSegment segment = LogSegment.open(directory, request.get("base_offset").asLong(),
                Partition.config(request), clock, true, 0, false, "");
            ArrayNode found = answer.values.putArray("found");
            for (JsonNode ask : request.get("ask")) {
                attempt(found, line -> segmentAnswer(segment, ask, line, answer));
            }
            segment.close();
        }
    }

    private static void segmentAnswer(LogSegment segment, JsonNode ask, ObjectNode line, Answer answer) throws IOException {
        switch (ask.get("what").asText()) {
            case "offset" -> position(line, segment.translateOffset(ask.get("offset").asLong()));
            case "timestamp" -> time(line, segment.findOffsetByTimestamp(
                ask.get("timestamp").asLong(), ask.path("start_offset").asLong(segment.baseOffset())));
            case "next_offset" -> line.put("offset", segment.readNextOffset());
            case "largest_timestamp" -> line.put("timestamp", segment.largestTimestamp());
            case "max_timestamp" -> line.put("timestamp", segment.readMaxTimestampAndOffsetSoFar().timestamp())
                .put("offset", segment.readMaxTimestampAndOffsetSoFar().offset());
            case "read" -> {
                FetchDataInfo data = segment.read(ask.get("offset").asLong(), ask.get("max_bytes").asInt(),
                    Optional.of(ask.path("max_position").asLong(segment.size())), ask.path("min_one").asBoolean(false));
                Partition.fetched(line, data, answer);
            }
            default -> throw new IllegalArgumentException("no such question: " + ask);
        }
    }

    /** The epoch cache over a leader-epoch-checkpoint file: [epoch, end offset] for each asked epoch. */
    static void epochs(JsonNode request, Answer answer) throws IOException {
        LeaderEpochCheckpointFile file =
            new LeaderEpochCheckpointFile(new File(request.get("file").asText()), new LogDirFailureChannel(1));
        try (Clock clock = new Clock(0)) {
            LeaderEpochFileCache cache = new LeaderEpochFileCache(new TopicPartition("t", 0), file, clock);
            ArrayNode entries = answer.values.putArray("entries");
            cache.epochEntries().forEach(entry -> entries.addArray().add(entry.epoch()).add(entry.startOffset()));
            ArrayNode found = answer.values.putArray("found");
            for (JsonNode target : request.get("targets")) {
                Map.Entry<Integer, Long> end = cache.endOffsetFor(target.asInt(), request.get("log_end_offset").asLong());
                found.addArray().add(end.getKey()).add(end.getValue());
            }
        }
    }

    interface Attempt {
        void into(ObjectNode line) throws Exception;
    }

    /** One line per question, also for the one that throws: the next is asked all the same. */
    static void attempt(ArrayNode found, Attempt attempt) {
        ObjectNode line = Answer.JSON.createObjectNode();
        try {
            attempt.into(line);
        } catch (Throwable error) {
            Answer.describe(line, error);
        }
        found.add(line);
    }

    private static void position(ObjectNode line, FileRecords.LogOffsetPosition found) {
        line.put("found", found != null);
        if (found != null) {
            line.put("offset", found.offset).put("position", found.position).put("size", found.size);
        }
    }

    static void time(ObjectNode line, Optional<FileRecords.TimestampAndOffset> found) {
        line.put("found", found.isPresent());
        found.ifPresent(at -> line.put("timestamp", at.timestamp).put("offset", at.offset)
            .put("leader_epoch", at.leaderEpoch.orElse(null)));
    }
}
