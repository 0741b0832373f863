package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;

import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import scala.jdk.javaapi.CollectionConverters;

/** Data directories loaded by the real log manager, as when a broker starts, and closed as when it stops. It writes: give copies. */
final class LogDirs {
    private LogDirs() {
    }

    /**
     * Request: dirs, config (topic properties), now, strays (names of partition directories). Answer: logs (directory, offsets), offline (data
     * directories), thrown (what ended the start: an exception, or none).
     */
    static void run(JsonNode request, Answer answer) throws Exception {
        List<File> dirs = new ArrayList<>();
        request.get("dirs").forEach(dir -> dirs.add(new File(dir.asText())));
        List<String> strays = new ArrayList<>();
        request.path("strays").forEach(name -> strays.add(name.asText()));
        LogDirFailureChannel failures = new LogDirFailureChannel(dirs.size());
        try (Clock clock = new Clock(request.path("now").asLong(0)); BrokerTopicStats stats = new BrokerTopicStats()) {
            LogManager manager = new LogManagerBuilder()
                .setLogDirs(dirs).setConfigRepository(resource -> new Properties())
                .setInitialDefaultConfig(Partition.config(request)).setCleanerConfig(new CleanerConfig(false))
                .setRecoveryThreadsPerDataDir(1).setFlushCheckMs(1000).setFlushRecoveryOffsetCheckpointMs(1000)
                .setFlushStartOffsetCheckpointMs(1000).setRetentionCheckMs(1000).setMaxTransactionTimeoutMs(900_000)
                .setProducerStateManagerConfig(86_400_000, false).setScheduler(clock).setBrokerTopicStats(stats)
                .setLogDirFailureChannel(failures).setTime(clock)
                .setRemoteStorageSystemEnable(false).build();
            try {
                manager.loadLogs(Partition.config(request), scala.collection.immutable.Map$.MODULE$.empty(),
                    log -> strays.contains(log.dir().getName()));
                describe(manager, answer);
                ArrayNode offline = answer.values.putArray("offline");
                dirs.stream().filter(dir -> failures.hasOfflineLogDir(dir.getAbsolutePath())).forEach(dir -> offline.add(dir.getPath()));
            } catch (Exception error) {
                Answer.describe(answer.values.putObject("thrown"), error);
            }
            try {
                clock.run(true);
                manager.shutdown(7);
                clock.run(true);
            } catch (KafkaStorageException error) {
                answer.values.put("closed", false); // a log of a data directory that is offline
            }
        }
    }

    private static void describe(LogManager manager, Answer answer) {
        ArrayNode logs = answer.values.putArray("logs");
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            logs.addObject().put("directory", log.dir().getPath()).put("log_start_offset", log.logStartOffset())
                .put("log_end_offset", log.logEndOffset()).put("recovery_point", log.recoveryPoint());
        }
    }
}
