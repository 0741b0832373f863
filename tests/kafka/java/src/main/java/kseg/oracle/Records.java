package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Base64;

/** Every batch and record of a segment as the real iterators return them, one JSON object a line. */
final class Records {
    private Records() {
    }

    /**
     * Request: file; "deep" false leaves the records out. Answer: one part with the lines. Where an iterator throws, the
     * last line has type "error"; what was read before it stays.
     */
    static void decode(JsonNode request, Answer answer) throws IOException {
        boolean deep = request.path("deep").asBoolean(true);
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        try (FileRecords records = FileRecords.open(new File(request.get("file").asText()), false)) {
            long position = 0;
            try {
                for (FileChannelRecordBatch batch : records.batches()) {
                    position = batch.position();
                    write(lines, batch(batch));
                    if (deep) {
                        for (Record record : batch) {
                            write(lines, record(batch, record));
                        }
                    }
                    position += batch.sizeInBytes();
                }
            } catch (Throwable error) {
                ObjectNode line = Answer.JSON.createObjectNode();
                line.put("type", "error").put("position", position);
                Answer.describe(line, error);
                write(lines, line);
            }
        }
        answer.part(lines.toByteArray());
    }

    private static void write(ByteArrayOutputStream lines, ObjectNode line) throws IOException {
        lines.write(Answer.JSON.writeValueAsBytes(line));
        lines.write('\n');
    }

    private static ObjectNode batch(FileChannelRecordBatch batch) {
        ObjectNode line = Answer.JSON.createObjectNode();
        line.put("type", "batch");
        line.put("position", batch.position());
        line.put("size", batch.sizeInBytes());
        line.put("magic", batch.magic());
        line.put("base_offset", batch.baseOffset());
        line.put("last_offset", batch.lastOffset());
        line.put("count", batch.countOrNull());
        line.put("base_sequence", batch.baseSequence());
        line.put("last_sequence", batch.lastSequence());
        line.put("producer_id", batch.producerId());
        line.put("producer_epoch", batch.producerEpoch());
        line.put("leader_epoch", batch.partitionLeaderEpoch());
        line.put("transactional", batch.isTransactional());
        line.put("control", batch.isControlBatch());
        line.put("delete_horizon_ms", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null);
        line.put("timestamp_type", batch.timestampType().name);
        line.put("max_timestamp", batch.maxTimestamp());
        line.put("compression", batch.compressionType().name);
        line.put("crc", batch.checksum());
        line.put("valid", batch.isValid());
        return line;
    }

    private static ObjectNode record(FileChannelRecordBatch batch, Record record) {
        ObjectNode line = Answer.JSON.createObjectNode();
        line.put("type", "record");
        line.put("position", batch.position());
        line.put("offset", record.offset());
        line.put("timestamp", record.timestamp());
        line.put("sequence", record.sequence());
        line.put("size", record.sizeInBytes());
        line.put("key", base64(record.key()));
        line.put("value", base64(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(Utils.wrapNullable(header.value())));
        }
        return line;
    }

    static String base64(ByteBuffer bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(Utils.toArray(bytes));
    }
}
