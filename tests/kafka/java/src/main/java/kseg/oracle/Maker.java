package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Batches made to order by the real builder. What a request leaves out has the value of an ordinary client's batch. */
final class Maker {
    private Maker() {
    }

    static void make(JsonNode request, Answer answer) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (JsonNode batch : request.get("batches")) {
            all.write(batch.path("empty").asBoolean(false) ? emptyBatch(batch) : batch(batch));
        }
        answer.part(all.toByteArray());
    }

    private static byte[] batch(JsonNode spec) {
        long baseOffset = spec.path("base_offset").asLong(0);
        byte magic = (byte) spec.path("magic").asInt(2);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1 << 12), magic, Codecs.of(spec), timestampType(spec, magic), baseOffset,
            spec.path("log_append_time").asLong(RecordBatch.NO_TIMESTAMP), producerId(spec), producerEpoch(spec),
            baseSequence(spec), spec.path("transactional").asBoolean(false), spec.path("control").asBoolean(false),
            leaderEpoch(spec), Integer.MAX_VALUE, spec.path("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP));
        long offset = baseOffset;
        for (JsonNode record : spec.get("records")) {
            offset = record.path("offset").asLong(offset);
            append(builder, offset, record);
            offset++;
        }
        if (spec.hasNonNull("last_offset")) {
            builder.overrideLastOffset(spec.get("last_offset").asLong());
        }
        return Utils.toArray(builder.build().buffer());
    }

    private static void append(MemoryRecordsBuilder builder, long offset, JsonNode record) {
        long timestamp = record.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP);
        if (record.hasNonNull("marker")) {
            EndTransactionMarker marker = new EndTransactionMarker(
                ControlRecordType.valueOf(record.get("marker").asText()), record.path("coordinator_epoch").asInt(0));
            ByteBuffer key = marker.controlType().recordKey();
            SimpleRecord control = new SimpleRecord(timestamp, key, marker.serializeValue(), new Header[0]);
            builder.appendControlRecordWithOffset(offset, control);
            return;
        }
        SimpleRecord plain = new SimpleRecord(timestamp, bytes(record.get("key")), bytes(record.get("value")), headers(record));
        if (builder.isControlBatch()) {
            builder.appendControlRecordWithOffset(offset, plain);
        } else {
            builder.appendWithOffset(offset, plain);
        }
    }

    /** The 61 bytes the cleaner leaves when it must keep a producer's last sequence number but no record. */
    private static byte[] emptyBatch(JsonNode spec) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.MAGIC_VALUE_V2, producerId(spec), producerEpoch(spec), baseSequence(spec),
            spec.path("base_offset").asLong(0), spec.path("last_offset").asLong(0), leaderEpoch(spec),
            timestampType(spec, RecordBatch.MAGIC_VALUE_V2), spec.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP),
            spec.path("transactional").asBoolean(false), spec.path("control").asBoolean(false));
        return buffer.array();
    }

    private static TimestampType timestampType(JsonNode spec, byte magic) {
        return magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : TimestampType.forName(spec.path("timestamp_type").asText(TimestampType.CREATE_TIME.name));
    }

    private static long producerId(JsonNode spec) {
        return spec.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID);
    }

    private static short producerEpoch(JsonNode spec) {
        return (short) spec.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH);
    }

    private static int baseSequence(JsonNode spec) {
        return spec.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE);
    }

    private static int leaderEpoch(JsonNode spec) {
        return spec.path("leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH);
    }

    private static byte[] bytes(JsonNode base64) {
        return base64 == null || base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }

    private static Header[] headers(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return headers.toArray(new Header[0]);
    }
}
