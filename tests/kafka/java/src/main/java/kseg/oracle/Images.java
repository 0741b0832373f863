package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.metadata.NoOpRecord;
import org.apache.kafka.common.metadata.ZkMigrationStateRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * The real classes' image of a metadata log: a snapshot (or none) and segments, applied record by record (MetadataDelta).
 *
 * One JSON object on stdin: "snapshot" (a path or null), "from" (the first offset of the log that counts), "segments" (paths),
 * "offsets" (as of which records to tell the state). On stdout one line for each of these offsets and one with the offset null for
 * the end: {"offset", "rows": [the lines of `kseg metadata --json`]}. Transactions by the controller's rule.
 */
public final class Images {
    private MetadataImage image = MetadataImage.EMPTY;
    private List<ApiMessage> held;

    public static void main(String[] args) throws Exception {
        JsonNode request = Answer.JSON.readTree(System.in);
        Images images = new Images();
        if (!request.get("snapshot").isNull()) {
            images.read(new File(request.get("snapshot").asText()), 0, Set.of());
        }
        Set<Long> offsets = new HashSet<>();
        request.get("offsets").forEach(each -> offsets.add(each.asLong()));
        for (JsonNode segment : request.get("segments")) {
            images.read(new File(segment.asText()), request.get("from").asLong(), offsets);
        }
        images.tell(null);
    }

    private void read(File file, long from, Set<Long> offsets) throws Exception {
        try (FileRecords records = FileRecords.open(file, false)) {
            for (RecordBatch batch : records.batches()) {
                for (Record record : batch) {
                    if (!batch.isControlBatch() && record.offset() >= from) {
                        take((ApiMessage) MetadataRecordSerde.INSTANCE
                            .read(new ByteBufferAccessor(record.value()), record.valueSize()).message());
                    }
                    if (offsets.contains(record.offset())) {
                        tell(record.offset());
                    }
                }
            }
        }
    }

    private void take(ApiMessage message) {
        if (message instanceof BeginTransactionRecord) {
            held = new ArrayList<>();
        } else if (message instanceof AbortTransactionRecord) {
            held = null;
        } else if (message instanceof EndTransactionRecord) {
            List<ApiMessage> messages = held;
            held = null;
            messages.forEach(this::apply);
        } else if (held != null) {
            held.add(message);
        } else {
            apply(message);
        }
    }

    private void apply(ApiMessage message) {
        if (message instanceof NoOpRecord || message instanceof ZkMigrationStateRecord) {
            return;
        }
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        delta.replay(message);
        image = delta.apply(new MetadataProvenance(0, 0, 0, true));
    }

    private void tell(Long offset) throws Exception {
        ObjectNode answer = Answer.JSON.createObjectNode();
        answer.put("offset", offset);
        ArrayNode rows = answer.putArray("rows");
        features(rows);
        image.cluster().brokers().values().forEach(broker -> broker(rows.addObject(), broker));
        image.topics().topicsById().values().forEach(topic -> topic(rows, topic));
        configs(rows);
        access(rows);
        System.out.println(Answer.JSON.writeValueAsString(answer));
    }

    private void features(ArrayNode rows) {
        image.features().metadataVersion().ifPresent(version ->
            rows.addObject().put("type", "feature").put("name", "metadata.version").put("level", version.featureLevel()));
        image.features().finalizedVersions().forEach((name, level) ->
            rows.addObject().put("type", "feature").put("name", name).put("level", level));
    }

    private static void broker(ObjectNode row, BrokerRegistration broker) {
        row.put("type", "broker").put("broker_id", broker.id()).put("epoch", broker.epoch());
        row.put("rack", broker.rack().orElse(null)).put("fenced", broker.fenced());
        row.put("in_controlled_shutdown", broker.inControlledShutdown());
        ArrayNode listeners = row.putArray("listeners");
        broker.listeners().values().forEach(each ->
            listeners.addObject().put("name", each.listener()).put("host", each.host()).put("port", each.port()));
        row.set("log_dirs", texts(broker.directories().toArray(Uuid[]::new)));
    }

    private static void topic(ArrayNode rows, TopicImage topic) {
        rows.addObject().put("type", "topic").put("topic", topic.name()).put("topic_id", topic.id().toString())
            .put("partitions", topic.partitions().size());
        topic.partitions().forEach((number, partition) ->
            partition(rows.addObject(), topic, number, partition));
    }

    private static void partition(ObjectNode row, TopicImage topic, int number, PartitionRegistration partition) {
        row.put("type", "partition").put("topic", topic.name()).put("topic_id", topic.id().toString()).put("partition", number);
        row.put("leader", partition.leader).put("leader_epoch", partition.leaderEpoch).put("partition_epoch", partition.partitionEpoch);
        row.put("leader_recovery_state", partition.leaderRecoveryState.name());
        row.set("replicas", numbers(partition.replicas));
        row.set("isr", numbers(partition.isr));
        row.set("adding_replicas", numbers(partition.addingReplicas));
        row.set("removing_replicas", numbers(partition.removingReplicas));
        row.set("directories", texts(partition.directories));
        row.set("elr", numbers(partition.elr));
        row.set("last_known_elr", numbers(partition.lastKnownElr));
    }

    private void configs(ArrayNode rows) {
        image.configs().resourceData().forEach((resource, config) -> config.data().forEach((name, value) ->
            rows.addObject().put("type", "config").put("resource_type", resource.type().name())
                .put("resource_name", resource.name()).put("name", name).put("value", value)));
    }

    private void access(ArrayNode rows) {
        image.acls().acls().forEach((id, acl) ->
            rows.addObject().put("type", "acl").put("resource_type", acl.resourceType().name())
                .put("resource_name", acl.resourceName()).put("pattern_type", acl.patternType().name())
                .put("principal", acl.principal()).put("host", acl.host()).put("operation", acl.operation().name())
                .put("permission", acl.permissionType().name()).put("acl_id", id.toString()));
        image.scram().mechanisms().forEach((mechanism, users) -> users.forEach((user, data) ->
            rows.addObject().put("type", "scram").put("user", user).put("mechanism", mechanism.mechanismName())
                .put("iterations", data.iterations())));
        image.clientQuotas().entities().forEach((entity, quotas) -> quotas.quotas().forEach((key, value) -> {
            ObjectNode row = rows.addObject().put("type", "quota").put("key", key).put("value", value);
            ObjectNode parts = row.putObject("entity");
            entity.entries().forEach(parts::put);
        }));
    }

    private static ArrayNode numbers(int[] values) {
        ArrayNode array = Answer.JSON.createArrayNode();
        Arrays.stream(values).forEach(array::add);
        return array;
    }

    private static ArrayNode texts(Uuid[] values) {
        ArrayNode array = Answer.JSON.createArrayNode();
        Arrays.stream(values).map(Uuid::toString).forEach(array::add);
        return array;
    }
}
