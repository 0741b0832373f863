package kseg.oracle;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * The real cleaner at its best: one log cleaned as a whole, again and again in one JVM, each time laid out anew (logs as hard
 * links, which a cleaner only renames). A line for each pass; its time is that of the cleaner alone.
 *
 * Arguments: partition directory, scratch directory on the same file system, seconds to go on for (one pass at least), the
 * clock in ms.
 */
public final class Clean {
    private static final int MAP_BYTES = 128 << 20;
    private static final int BUFFER_BYTES = 512 << 10;

    private Clean() {
    }

    public static void main(String[] args) throws Exception {
        Path source = Path.of(args[0]);
        Path place = Path.of(args[1]).resolve(source.getFileName());
        long deadline = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        SkimpyOffsetMap map = new SkimpyOffsetMap(MAP_BYTES);
        do {
            layOut(source, place);
            pass(place.toFile(), map, Long.parseLong(args[3]));
        } while (System.nanoTime() < deadline);
        remove(place);
    }

    private static void layOut(Path source, Path place) throws IOException {
        remove(place);
        Files.createDirectories(place);
        List<Path> files;
        try (Stream<Path> found = Files.list(source)) {
            files = found.filter(Files::isRegularFile).toList();
        }
        for (Path file : files) {
            Path target = place.resolve(file.getFileName());
            if (file.toString().endsWith(".log")) {
                Files.createLink(target, file);
            } else {
                Files.copy(file, target);
            }
        }
    }

    private static void remove(Path place) throws IOException {
        if (Files.exists(place)) {
            try (Stream<Path> found = Files.walk(place)) {
                found.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private static void pass(File directory, SkimpyOffsetMap map, long nowMs) throws Exception {
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "retention.ms", "-1"));
        try (Clock clock = new Clock(nowMs); BrokerTopicStats stats = new BrokerTopicStats()) {
            UnifiedLog log = UnifiedLog.create(directory, config, 0, 0, clock, stats, clock, 900_000,
                new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            log.removeExpiredProducers(nowMs);
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", Time.SYSTEM);
            Cleaner cleaner = new Cleaner(0, map, BUFFER_BYTES, 1 << 20, 0.9, throttler, clock, partition -> { });
            LogToClean cleanable = new LogToClean(log, 0, log.activeSegment().baseOffset(), true);
            long started = System.nanoTime();
            long end = cleaner.doClean(cleanable, nowMs).getKey();
            double seconds = (System.nanoTime() - started) / 1e9;
            long bytes = log.logSegments().stream().mapToLong(LogSegment::size).sum();
            System.out.printf("{\"next_dirty_offset\":%d,\"bytes_after\":%d,\"seconds\":%.6f}%n", end, bytes, seconds);
            clock.run(false);
            log.producerExpireCheck().cancel(true);
            log.closeHandlers();
        }
    }
}
