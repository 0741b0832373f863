package kseg.oracle;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;

/**
 * A log for the cleaner, made by the real one and the same in every run: keys that come again and again, one value in fifty a
 * tombstone, one batch in fifty a transaction, of which every third is aborted. All segments are closed but an empty last one.
 *
 * Arguments: directory of the partition, records, keys, bytes of a segment, codec.
 */
public final class Keyed {
    private static final long FIRST_MS = 1_700_000_000_000L;
    private static final int BATCH = 100;
    private static final int ONE_IN = 50;
    private static final long PRODUCER = 7;
    private static final byte[] KEY = "key-000000000".getBytes(StandardCharsets.UTF_8);
    private static final byte[] VALUE = ("{\"id\":\"0000000000\",\"user\":\"u000000\",\"event\":\"page-view\","
        + "\"ms\":\"00000\",\"trace\":\"00000000000000000000\"}").getBytes(StandardCharsets.UTF_8);

    private final Compression compression;
    private final long keys;
    private int sequence;

    private Keyed(Compression compression, long keys) {
        this.compression = compression;
        this.keys = keys;
    }

    public static void main(String[] args) throws IOException {
        Path done = Path.of(args[0]);
        Path place = done.resolveSibling("." + ProcessHandle.current().pid()).resolve(done.getFileName());
        Files.createDirectories(place);
        new Keyed(Compression.of(CompressionType.forName(args[4])).build(), Long.parseLong(args[2]))
            .write(place.toFile(), Long.parseLong(args[1]), args[3]);
        Files.move(place, done);
        Files.delete(place.getParent());
    }

    private void write(File directory, long records, String segmentBytes) throws IOException {
        LogConfig config = new LogConfig(Map.of("retention.ms", "-1", "internal.segment.bytes", segmentBytes,
            "cleanup.policy", "compact"));
        try (Clock clock = new Clock(FIRST_MS); BrokerTopicStats stats = new BrokerTopicStats()) {
            UnifiedLog log = UnifiedLog.create(directory, config, 0, 0, clock, stats, clock, 900_000,
                new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
            log.assignTopicId(new Uuid(5, 6));
            long number = 0;
            for (long n = 0; n < records; n += BATCH, number++) {
                boolean inTransaction = number % ONE_IN == 1;
                log.appendAsFollower(batch(log.logEndOffset(), n, inTransaction), 0);
                if (inTransaction) {
                    boolean aborts = number / ONE_IN % 3 == 1;
                    log.appendAsFollower(marker(log.logEndOffset(), FIRST_MS + n, aborts), 0);
                }
                log.updateHighWatermark(log.logEndOffset());
            }
            log.roll();
            log.flush(true);
            clock.run(false);
            log.close();
            clock.run(false);
        }
    }

    private MemoryRecords batch(long offset, long first, boolean inTransaction) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(BATCH * 140 + 128),
            RecordBatch.MAGIC_VALUE_V2, compression, TimestampType.CREATE_TIME, offset, RecordBatch.NO_TIMESTAMP,
            inTransaction ? PRODUCER : RecordBatch.NO_PRODUCER_ID, inTransaction ? (short) 0 : RecordBatch.NO_PRODUCER_EPOCH,
            inTransaction ? sequence : RecordBatch.NO_SEQUENCE, inTransaction, false, 0, Integer.MAX_VALUE);
        sequence += inTransaction ? BATCH : 0;
        for (long n = first; n < first + BATCH; n++) {
            long random = mix(n);
            byte[] value = VALUE.clone();
            digits(value, 7, 10, n);
            digits(value, 28, 6, (random >>> 8) % 1_000_000);
            digits(value, VALUE.length - 22, 20, random >>> 1);
            byte[] key = KEY.clone();
            digits(key, 4, 9, (random >>> 16) % keys);
            boolean isTombstone = (random >>> 40) % ONE_IN == 0;
            builder.append(FIRST_MS + n, ByteBuffer.wrap(key), isTombstone ? null : ByteBuffer.wrap(value));
        }
        return builder.build();
    }

    private static MemoryRecords marker(long offset, long timestampMs, boolean aborts) {
        return MemoryRecords.withEndTransactionMarker(offset, timestampMs, 0, PRODUCER, (short) 0,
            new EndTransactionMarker(aborts ? ControlRecordType.ABORT : ControlRecordType.COMMIT, 0));
    }

    private static void digits(byte[] into, int at, int width, long number) {
        for (int i = at + width - 1; i >= at; i--, number /= 10) {
            into[i] = (byte) ('0' + number % 10);
        }
    }

    private static long mix(long n) {
        long z = (n + 1) * 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }
}
