package kseg.oracle;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** A clock that stands still, and a scheduler that runs nothing until told to: what happens is the same in every run. */
final class Clock implements Time, Scheduler, AutoCloseable {
    private record Task(Runnable body, long delayMs) {
    }

    private static final class Promise extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }
    }

    private final List<Task> tasks = new ArrayList<>();
    private long nowMs;

    Clock(long nowMs) {
        this.nowMs = nowMs;
    }

    void set(long nowMs) {
        this.nowMs = nowMs;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000;
    }

    @Override
    public void sleep(long ms) {
        nowMs += ms;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException();
    }

    @Override
    public synchronized ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs < 0) {
            tasks.add(new Task(task, delayMs));
        }
        return new Promise();
    }

    /** Run what was scheduled: always what was due at once, with `delayed` also what was put off (file deletion). */
    void run(boolean delayed) {
        for (List<Task> due = take(delayed); !due.isEmpty(); due = take(delayed)) {
            due.forEach(task -> task.body.run());
        }
    }

    private synchronized List<Task> take(boolean delayed) {
        List<Task> due = tasks.stream().filter(task -> delayed || task.delayMs <= 0).toList();
        tasks.removeAll(due);
        return due;
    }

    @Override
    public void startup() {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public void resizeThreadPool(int newSize) {
    }

    @Override
    public void close() {
        tasks.clear();
    }
}
