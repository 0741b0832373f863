package kseg.oracle;

import java.io.DataInputStream;
import java.io.EOFException;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records to partition 0 of topics, none while a full batch is under way, so that what the producer has learnt of the compression does not depend on threads: Produce BOOTSTRAP TOPIC [PROPERTY=VALUE...] [-- TOPIC [PROPERTY=VALUE...]]...
 *
 * <p>Standard input: the number of records, and of each timestamp int64, key length int32, key, value length int32, value.
 */
public final class Produce {
    private Produce() {
    }

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        int count = in.readInt();
        long[] times = new long[count];
        byte[][] keys = new byte[count][];
        byte[][] values = new byte[count][];
        for (int at = 0; at < count; at++) {
            times[at] = in.readLong();
            keys[at] = bytes(in);
            values[at] = bytes(in);
        }
        int at = 1;
        while (at < args.length) {
            String topic = args[at++];
            Properties properties = new Properties();
            properties.put("bootstrap.servers", args[0]);
            properties.put("key.serializer", ByteArraySerializer.class.getName());
            properties.put("value.serializer", ByteArraySerializer.class.getName());
            for (; at < args.length && !args[at].equals("--"); at++) {
                String[] parts = args[at].split("=", 2);
                properties.put(parts[0], parts[1]);
            }
            at++;
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
                Metric free = producer.metrics().values().stream()
                        .filter(metric -> metric.metricName().name().equals("buffer-available-bytes"))
                        .findFirst().orElseThrow();
                double whole = (double) free.metricValue();
                double batch = Double.parseDouble(properties.getProperty("batch.size", "16384"));
                for (int each = 0; each < count; each++) {
                    producer.send(new ProducerRecord<>(topic, 0, times[each], keys[each], values[each]));
                    while (whole - (double) free.metricValue() > batch) {
                        Thread.sleep(1);
                    }
                }
                producer.flush();
            }
        }
    }

    private static byte[] bytes(DataInputStream in) throws Exception {
        byte[] found = new byte[in.readInt()];
        if (in.readNBytes(found, 0, found.length) != found.length) {
            throw new EOFException();
        }
        return found;
    }
}
