package kseg.oracle;

import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * The real log loader at its best: every partition of a data directory recovered as after an unclean stop, without side
 * files, by some threads (num.recovery.threads.per.data.dir), again and again in one JVM. A line for each pass.
 *
 * Arguments: data directory, threads, seconds to go on for (one pass at least).
 */
public final class Load {
    private Load() {
    }

    public static void main(String[] args) throws Exception {
        List<File> partitions = new ArrayList<>();
        for (File child : new File(args[0]).listFiles(File::isDirectory)) {
            partitions.add(child);
        }
        ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(args[1]));
        long deadline = System.nanoTime() + (long) (Double.parseDouble(args[2]) * 1e9);
        try (BrokerTopicStats stats = new BrokerTopicStats()) {
            do {
                partitions.forEach(Load::forgetSideFiles);
                long started = System.nanoTime();
                long end = pass(partitions, threads, stats);
                double seconds = (System.nanoTime() - started) / 1e9;
                System.out.printf("{\"partitions\":%d,\"log_end_offsets\":%d,\"seconds\":%.6f}%n", partitions.size(), end, seconds);
            } while (System.nanoTime() < deadline);
        }
        threads.shutdown();
    }

    private static void forgetSideFiles(File partition) {
        for (File file : partition.listFiles()) {
            if (!file.getName().endsWith(".log") && !file.delete()) {
                throw new IllegalStateException("cannot delete " + file);
            }
        }
    }

    private static long pass(List<File> partitions, ExecutorService threads, BrokerTopicStats stats) throws Exception {
        List<Future<Long>> ends = new ArrayList<>();
        for (File partition : partitions) {
            ends.add(threads.submit(() -> load(partition, stats)));
        }
        long sum = 0;
        for (Future<Long> end : ends) {
            sum += end.get();
        }
        return sum;
    }

    private static long load(File partition, BrokerTopicStats stats) throws Exception {
        try (Clock clock = new Clock(System.currentTimeMillis())) {
            UnifiedLog log = UnifiedLog.create(
                partition, new LogConfig(Map.of()), 0, 0, clock, stats, clock, 900_000,
                new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), false, Optional.empty());
            long end = log.logEndOffset();
            log.close();
            return end;
        }
    }
}
