package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/** One round of the real cleaner over a loaded log. */
final class Compaction {
    private Compaction() {
    }

    /**
     * Step: first_dirty_offset (absent: as without a checkpoint), map_bytes, io_buffer_bytes. Answer: the offsets between which
     * the manager would clean, and with "only_offsets", or when there is nothing to clean, no more; else the first offset not cleaned.
     */
    static void run(UnifiedLog log, Clock clock, JsonNode step, ObjectNode line) throws Exception {
        Optional<Long> checkpoint = step.hasNonNull("first_dirty_offset")
            ? Optional.of(step.get("first_dirty_offset").asLong()) : Optional.empty();
        Object range = cleanableOffsets(log, checkpoint, clock.milliseconds());
        long firstDirty = component(range, "firstDirtyOffset");
        long firstUncleanable = component(range, "firstUncleanableDirtyOffset");
        line.put("first_dirty_offset", firstDirty).put("first_uncleanable_offset", firstUncleanable);
        LogToClean cleanable = new LogToClean(log, firstDirty, firstUncleanable, true);
        line.put("clean_bytes", cleanable.cleanBytes()).put("cleanable_bytes", cleanable.cleanableBytes());
        if (step.path("only_offsets").asBoolean(false) || cleanable.cleanableBytes() == 0) {
            return;
        }
        int buffer = step.path("io_buffer_bytes").asInt(1 << 20);
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", Time.SYSTEM);
        SkimpyOffsetMap map = new SkimpyOffsetMap(step.path("map_bytes").asInt(1 << 22));
        Cleaner cleaner = new Cleaner(0, map, buffer / 2, buffer, 0.9, throttler, clock, partition -> { });
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(cleanable, clock.milliseconds());
        line.put("next_dirty_offset", done.getKey());
    }

    /** The manager keeps this rule to its package; it is the rule we are judged by, so it is asked all the same. */
    private static Object cleanableOffsets(UnifiedLog log, Optional<Long> checkpoint, long nowMs) throws Exception {
        Class<?> manager = Class.forName("org.apache.kafka.storage.internals.log.LogCleanerManager");
        Method rule = manager.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        rule.setAccessible(true);
        try {
            return rule.invoke(null, log, checkpoint, nowMs);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    private static long component(Object record, String name) throws ReflectiveOperationException {
        Method accessor = record.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return (long) accessor.invoke(record);
    }
}
