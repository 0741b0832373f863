package kseg.oracle;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * The files that benchmarks race over, made by Kafka's own classes and the same in every run: record n has offset n, time
 * 1700000000000 + n, and a key and value that are functions of n. Each corpus is made under a hidden name and renamed when
 * it is whole; one that is there already is left alone.
 *
 * Arguments: directory, bytes of a plain segment, bytes of the big file, number of small partitions.
 */
public final class Corpus {
    private static final long FIRST_MS = 1_700_000_000_000L;
    private static final int BATCH = 100;
    private static final int SMALL_RECORDS = 400;
    private static final int KEYS = 500_000;
    private static final byte[] VALUE = ("{\"id\":\"0000000000\",\"user\":\"u000000\",\"event\":\"page-view\","
        + "\"ms\":\"00000\",\"trace\":\"00000000000000000000\"}").getBytes(StandardCharsets.UTF_8);
    private static final byte[] KEY = "key-000000000".getBytes(StandardCharsets.UTF_8);
    private static final String[] EVENTS = {"page-view", "add-to-it", "check-out", "search-it"};

    private final Path root;

    private Corpus(Path root) {
        this.root = root;
    }

    public static void main(String[] args) throws IOException {
        Corpus corpus = new Corpus(Path.of(args[0]));
        long segmentBytes = Long.parseLong(args[1]);
        for (int batch : new int[] {BATCH, 1}) {
            long records = recordsOf(segmentBytes, batch);
            for (CompressionType type : CompressionType.values()) {
                String name = (type == CompressionType.NONE ? "plain" : type.name) + "-" + batch;
                corpus.once(name, place -> corpus.segment(place, Compression.of(type).build(), batch, records));
            }
        }
        long bigBytes = Long.parseLong(args[2]);
        corpus.once("big", place -> corpus.big(place, bigBytes));
        int partitions = Integer.parseInt(args[3]);
        corpus.once("many", place -> corpus.many(place, partitions));
    }

    private interface Making {
        void at(Path place) throws IOException;
    }

    private void once(String name, Making making) throws IOException {
        Path done = root.resolve(name);
        if (Files.exists(done)) {
            System.err.println(name + ": there already");
            return;
        }
        Path place = root.resolve("." + name + "." + ProcessHandle.current().pid());
        Files.createDirectories(place);
        long started = System.nanoTime();
        making.at(place);
        Files.move(place, done);
        System.err.printf("%s: made in %.1f s%n", name, (System.nanoTime() - started) / 1e9);
    }

    /** How many records make a plain segment of about that many bytes. */
    private static long recordsOf(long bytes, int batch) {
        int size = batch(0, batch, Compression.NONE).sizeInBytes();
        return Math.max(1, bytes / size) * batch;
    }

    /** One segment with its indexes, as the topic "bench", partition 0. */
    private void segment(Path place, Compression compression, int batch, long records) throws IOException {
        File directory = Files.createDirectory(place.resolve("bench-0")).toFile();
        LogSegment segment = LogSegment.open(directory, 0, config(Map.of()), Time.SYSTEM, false, 0, false, "");
        for (long n = 0; n < records; n += batch) {
            segment.append(n + batch - 1, batch(n, batch, compression));
        }
        segment.onBecomeInactiveSegment();
        segment.flush();
        segment.close();
    }

    /** A file beyond what Kafka's own classes open: batches one after the other, no index. */
    private void big(Path place, long bytes) throws IOException {
        Path file = Files.createDirectory(place.resolve("bench-0")).resolve("00000000000000000000.log");
        long written = 0;
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(file), 1 << 20)) {
            for (long n = 0; written < bytes; n += BATCH) {
                MemoryRecords records = batch(n, BATCH, Compression.NONE);
                Channels.newChannel(out).write(records.buffer().duplicate());
                written += records.sizeInBytes();
            }
        }
    }

    /** A log dir as a clean stop leaves it: many partitions, two small segments each, all side files. */
    private void many(Path place, int partitions) throws IOException {
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<TopicPartition, Long> none = new HashMap<>();
        try (BrokerTopicStats stats = new BrokerTopicStats()) {
            for (int partition = 0; partition < partitions; partition++) {
                TopicPartition name = new TopicPartition("many", partition);
                smallPartition(place.resolve(name.toString()).toFile(), partition, stats);
                ends.put(name, (long) SMALL_RECORDS);
            }
        }
        checkpoint(place, "recovery-point-offset-checkpoint", ends);
        checkpoint(place, "replication-offset-checkpoint", ends);
        checkpoint(place, "log-start-offset-checkpoint", none);
        checkpoint(place, "cleaner-offset-checkpoint", none);
        Files.writeString(place.resolve("meta.properties"),
            "version=1\ncluster.id=" + new Uuid(1, 2) + "\ndirectory.id=" + new Uuid(3, 4) + "\nnode.id=1\n");
        Files.writeString(place.resolve(".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":1}");
    }

    private static void smallPartition(File directory, int partition, BrokerTopicStats stats) throws IOException {
        try (Clock clock = new Clock(FIRST_MS)) {
            UnifiedLog log = UnifiedLog.create(directory, config(Map.of("index.interval.bytes", "1024")), 0, 0, clock, stats,
                clock, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
                true, Optional.empty());
            log.assignTopicId(new Uuid(5, 6));
            CompressionType[] codecs = CompressionType.values();
            Compression compression = Compression.of(codecs[partition % codecs.length]).build();
            for (int n = 0; n < SMALL_RECORDS; n += BATCH / 10) {
                if (n == SMALL_RECORDS / 2) {
                    log.roll();
                }
                log.appendAsLeader(batch(n, BATCH / 10, compression, partition, n), 0);
            }
            log.updateHighWatermark(log.logEndOffset());
            log.flush(true);
            clock.run(false);
            log.close();
            clock.run(false);
        }
    }

    private static void checkpoint(Path place, String name, Map<TopicPartition, Long> offsets) throws IOException {
        new OffsetCheckpointFile(place.resolve(name).toFile(), new LogDirFailureChannel(1)).write(offsets);
    }

    private static LogConfig config(Map<String, String> properties) {
        Map<String, String> all = new HashMap<>(properties);
        all.put("retention.ms", "-1");
        return new LogConfig(all);
    }

    private static MemoryRecords batch(long first, int count, Compression compression) {
        return batch(first, count, compression, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_SEQUENCE);
    }

    private static MemoryRecords batch(long first, int count, Compression compression, long producer, int sequence) {
        short epoch = producer == RecordBatch.NO_PRODUCER_ID ? RecordBatch.NO_PRODUCER_EPOCH : 0;
        boolean placed = producer == RecordBatch.NO_PRODUCER_ID; // a producer's batch begins at 0, the log moves it
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(count * 140 + 128),
            RecordBatch.MAGIC_VALUE_V2, compression, TimestampType.CREATE_TIME, placed ? first : 0,
            RecordBatch.NO_TIMESTAMP, producer, epoch, sequence, false, false, 0, Integer.MAX_VALUE);
        for (long n = first; n < first + count; n++) {
            long random = mix(n);
            builder.append(FIRST_MS + n, ByteBuffer.wrap(key(random)), ByteBuffer.wrap(value(n, random)));
        }
        return builder.build();
    }

    private static byte[] key(long random) {
        byte[] key = KEY.clone();
        digits(key, 4, 9, (random >>> 16) % KEYS);
        return key;
    }

    private static byte[] value(long n, long random) {
        byte[] value = VALUE.clone();
        digits(value, 7, 10, n);
        digits(value, 28, 6, (random >>> 8) % 1_000_000);
        byte[] event = EVENTS[(int) (random & 3)].getBytes(StandardCharsets.UTF_8);
        System.arraycopy(event, 0, value, 45, event.length);
        digits(value, 62, 5, (random >>> 32) % 100_000);
        for (int i = 0; i < 20; i++) {
            long bits = i < 10 ? random : mix(random);
            value[78 + i] = (byte) Character.forDigit((int) (bits >>> (4 * i % 40)) & 15, 16);
        }
        return value;
    }

    private static void digits(byte[] into, int at, int width, long number) {
        for (int i = at + width - 1; i >= at; i--, number /= 10) {
            into[i] = (byte) ('0' + number % 10);
        }
    }

    /** Spreads the bits of n: a fixed function that looks random (the finalizer of MurmurHash3). */
    private static long mix(long n) {
        long x = n + 0x9E3779B97F4A7C15L;
        x = (x ^ (x >>> 33)) * 0xff51afd7ed558ccdL;
        x = (x ^ (x >>> 33)) * 0xc4ceb9fe1a85ec53L;
        return x ^ (x >>> 33);
    }
}
