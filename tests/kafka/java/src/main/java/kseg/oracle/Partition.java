package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** A partition directory loaded by the real log loader, then asked and changed step by step. It writes: give a copy. */
final class Partition {
    private final UnifiedLog log;
    private final Clock clock;
    private final Answer answer;

    private Partition(UnifiedLog log, Clock clock, Answer answer) {
        this.log = log;
        this.clock = clock;
        this.answer = answer;
    }

    /**
     * Request: dir, config (topic properties), log_start_offset, recovery_point, clean (shutdown), now,
     * producer_id_expiration_ms, max_transaction_timeout_ms, high_watermark (default: log end), steps, close ("close" as
     * a clean stop does, or "handlers": as a crash leaves it), delayed (also run what is put off, as file deletion).
     * Answer: loaded (state after loading), found (one line per step), ended (state before closing).
     */
    static void run(JsonNode request, Answer answer) throws IOException {
        try (Clock clock = new Clock(request.path("now").asLong(0)); BrokerTopicStats stats = new BrokerTopicStats()) {
            boolean delayed = request.path("delayed").asBoolean(false);
            int expirationMs = request.path("producer_id_expiration_ms").asInt(86_400_000);
            UnifiedLog log = UnifiedLog.create(
                new File(request.get("dir").asText()), config(request), request.path("log_start_offset").asLong(0),
                request.path("recovery_point").asLong(0), clock, stats, clock,
                request.path("max_transaction_timeout_ms").asInt(900_000),
                new ProducerStateManagerConfig(expirationMs, false), 600_000, new LogDirFailureChannel(1),
                request.path("clean").asBoolean(false), Optional.empty(), new ConcurrentHashMap<>(),
                request.path("tiered").asBoolean(false), LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            clock.run(delayed);
            log.updateHighWatermark(request.path("high_watermark").asLong(log.logEndOffset()));
            Partition partition = new Partition(log, clock, answer);
            answer.values.set("loaded", partition.state());
            ArrayNode found = answer.values.putArray("found");
            for (JsonNode step : request.path("steps")) {
                Lookups.attempt(found, line -> partition.step(step, line));
                clock.run(delayed);
            }
            answer.values.set("ended", partition.state());
            if (request.path("close").asText("close").equals("close")) {
                log.close();
            } else {
                log.producerExpireCheck().cancel(true);
                log.closeHandlers();
            }
            clock.run(delayed);
        }
    }

    static LogConfig config(JsonNode request) {
        Map<String, String> properties = new HashMap<>();
        request.path("config").properties().forEach(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        return new LogConfig(properties);
    }

    private void step(JsonNode step, ObjectNode line) throws Exception {
        switch (step.get("what").asText()) {
            case "offset_by_timestamp" -> Lookups.time(line,
                log.fetchOffsetByTimestamp(step.get("timestamp").asLong(), Optional.empty()).timestampAndOffsetOpt());
            case "epoch_end" -> log.endOffsetForEpoch(step.get("epoch").asInt()).ifPresentOrElse(
                end -> line.put("found", true).put("leader_epoch", end.epoch()).put("offset", end.offset()),
                () -> line.put("found", false));
            case "read" -> fetched(line, log.read(step.get("offset").asLong(), step.get("max_bytes").asInt(),
                FetchIsolation.valueOf(step.path("isolation").asText("LOG_END")), step.path("min_one").asBoolean(true)), answer);
            case "aborted" -> {
                ArrayNode list = line.putArray("aborted");
                log.collectAbortedTransactions(step.get("from").asLong(), step.get("to").asLong()).forEach(txn ->
                    list.addArray().add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset()).add(txn.lastStableOffset()));
            }
            case "append" -> append(step, line);
            case "roll" -> line.put("base_offset", log.roll(step.hasNonNull("offset")
                ? Optional.of(step.get("offset").asLong()) : Optional.empty()).baseOffset());
            case "flush" -> log.flush(true);
            case "now" -> clock.set(step.get("ms").asLong());
            case "remote_end_offset" -> log.updateHighestOffsetInRemoteStorage(step.get("offset").asLong() - 1);
            case "high_watermark" -> line.put("offset", log.updateHighWatermark(step.get("offset").asLong()));
            case "log_start_offset" -> line.put("changed", log.maybeIncrementLogStartOffset(
                step.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion));
            case "truncate" -> line.put("changed", log.truncateTo(step.get("offset").asLong()));
            case "retain" -> line.put("deleted", log.deleteOldSegments());
            case "expire_producers" -> log.removeExpiredProducers(clock.milliseconds());
            case "clean" -> Compaction.run(log, clock, step, line);
            case "state" -> line.setAll(state());
            default -> throw new IllegalArgumentException("no such step: " + step);
        }
    }

    /** "batches" in base64; as a leader (the default) the log assigns offsets, as a follower they stay. */
    private void append(JsonNode step, ObjectNode line) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(
            ByteBuffer.wrap(Base64.getDecoder().decode(step.get("batches").asText())));
        int epoch = step.path("leader_epoch").asInt(0);
        LogAppendInfo info = step.path("follower").asBoolean(false)
            ? log.appendAsFollower(records, epoch)
            : log.appendAsLeader(records, epoch, AppendOrigin.valueOf(step.path("origin").asText("CLIENT")),
                RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) step.path("transaction_version").asInt(0));
        log.updateHighWatermark(log.logEndOffset());
        line.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset());
    }

    /** Where a read begins, whether its first batch is cut, and the bytes as a part ("part" is its number). */
    static void fetched(ObjectNode line, FetchDataInfo data, Answer answer) throws IOException {
        line.put("found", data != null);
        if (data == null) {
            return;
        }
        ByteBuffer bytes = ByteBuffer.allocate(data.records.sizeInBytes());
        if (data.records instanceof FileRecords file) {
            file.readInto(bytes, 0);
        }
        line.put("offset", data.fetchOffsetMetadata.messageOffset);
        line.put("segment", data.fetchOffsetMetadata.segmentBaseOffset);
        line.put("position", data.fetchOffsetMetadata.relativePositionInSegment);
        line.put("cut", data.firstEntryIncomplete);
        line.put("part", answer.part(Utils.toArray(bytes)));
        data.abortedTransactions.ifPresent(list -> {
            ArrayNode aborted = line.putArray("aborted");
            list.forEach(txn -> aborted.addArray().add(txn.producerId()).add(txn.firstOffset()));
        });
    }

    private ObjectNode state() throws IOException {
        ObjectNode state = Answer.JSON.createObjectNode();
        state.put("log_start_offset", log.logStartOffset());
        state.put("log_end_offset", log.logEndOffset());
        state.put("last_stable_offset", log.lastStableOffset());
        state.put("high_watermark", log.highWatermark());
        state.put("recovery_point", log.recoveryPoint());
        ArrayNode segments = state.putArray("segments");
        for (LogSegment segment : log.logSegments()) {
            segments.addObject().put("base_offset", segment.baseOffset()).put("size", segment.size())
                .put("largest_timestamp", segment.largestTimestamp());
        }
        ArrayNode epochs = state.putArray("epochs");
        log.leaderEpochCache().epochEntries().forEach(entry -> epochs.addArray().add(entry.epoch()).add(entry.startOffset()));
        ArrayNode producers = state.putArray("producers");
        log.activeProducers().forEach(producer -> producers.addObject().put("producer_id", producer.producerId())
            .put("producer_epoch", producer.producerEpoch()).put("last_sequence", producer.lastSequence())
            .put("last_timestamp", producer.lastTimestamp()).put("coordinator_epoch", producer.coordinatorEpoch())
            .put("current_txn_first_offset", producer.currentTxnStartOffset()));
        return state;
    }
}
