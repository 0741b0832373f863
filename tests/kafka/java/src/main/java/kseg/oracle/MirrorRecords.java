package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.OffsetSync;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Base64;
import java.util.Map;

/**
 * Records of MirrorMaker's topics as its own classes write them. Each line of stdin is the data of one, as kseg shows it (`kind`, `key`, `value`); each
 * line of stdout has its bytes in base64 (`key`, `value`) and the topic that it is written to, for the cluster `separator` and alias `A` (`topic`).
 */
public final class MirrorRecords {
    private MirrorRecords() {
    }

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = Answer.JSON.readTree(line);
            var policy = new DefaultReplicationPolicy();
            policy.configure(Map.of("replication.policy.separator", asked.get("separator").asText()));
            JsonNode key = asked.get("key");
            JsonNode value = asked.get("value");
            Object record;
            String topic;
            switch (asked.get("kind").asText()) {
                case "heartbeat" -> {
                    record = new Heartbeat(key.get("sourceClusterAlias").asText(), key.get("targetClusterAlias").asText(),
                        value.get("timestamp").asLong());
                    topic = asked.get("is_remote").asBoolean() ? policy.formatRemoteTopic("A", policy.heartbeatsTopic()) : policy.heartbeatsTopic();
                }
                case "checkpoint" -> {
                    record = new Checkpoint(key.get("group").asText(), place(key), value.get("upstreamOffset").asLong(),
                        value.get("offset").asLong(), value.get("metadata").asText());
                    topic = policy.checkpointsTopic("A");
                }
                default -> {
                    record = new OffsetSync(place(key), value.get("upstreamOffset").asLong(), value.get("offset").asLong());
                    topic = policy.offsetSyncsTopic("A");
                }
            }
            ObjectNode answer = Answer.JSON.createObjectNode().put("topic", topic);
            answer.put("key", bytes(record, "recordKey")).put("value", bytes(record, "recordValue"));
            System.out.println(Answer.JSON.writeValueAsString(answer));
        }
    }

    private static TopicPartition place(JsonNode key) {
        return new TopicPartition(key.get("topic").asText(), key.get("partition").asInt());
    }

    private static String bytes(Object record, String name) throws Exception {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return Base64.getEncoder().encodeToString((byte[]) method.invoke(record));
    }
}
