package kseg.oracle;

import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

import java.io.File;
import java.io.IOException;

/**
 * The real classes at their best: every batch of a segment checked and every record decoded, again and again in one JVM,
 * with one supplier of buffers for all batches as a broker has it. A line for each pass.
 *
 * Arguments: file, seconds to go on for (three passes at least).
 */
public final class Warm {
    private static final int LEAST_PASSES = 3;

    private Warm() {
    }

    public static void main(String[] args) throws IOException {
        File file = new File(args[0]);
        long deadline = System.nanoTime() + (long) (Double.parseDouble(args[1]) * 1e9);
        BufferSupplier buffers = BufferSupplier.create();
        for (int pass = 0; pass < LEAST_PASSES || System.nanoTime() < deadline; pass++) {
            long started = System.nanoTime();
            long[] seen = pass(file, buffers);
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.printf("{\"batches\":%d,\"records\":%d,\"bytes\":%d,\"seconds\":%.6f}%n", seen[0], seen[1], seen[2], seconds);
        }
    }

    /** Batches, records, and bytes of keys and values, so that nothing can be left out as unused. */
    private static long[] pass(File file, BufferSupplier buffers) throws IOException {
        long batches = 0;
        long records = 0;
        long bytes = 0;
        try (FileRecords log = FileRecords.open(file, false)) {
            for (FileChannelRecordBatch batch : log.batches()) {
                batch.ensureValid();
                batches++;
                try (CloseableIterator<Record> each = batch.streamingIterator(buffers)) {
                    while (each.hasNext()) {
                        Record record = each.next();
                        records++;
                        bytes += record.keySize() + record.valueSize();
                    }
                }
            }
        }
        return new long[] {batches, records, bytes};
    }
}
