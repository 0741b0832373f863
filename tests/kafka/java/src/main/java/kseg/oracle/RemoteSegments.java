package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Base64;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

/**
 * What the real store has of one partition after some records: one JSON object a line on stdin, "records" (base64), "epochs" and "end";
 * one a line on stdout: "segments" {id: state}, "read" {epoch: [the segment of each offset below the end, or null]}, and "gone" where the
 * store has forgotten the partition. "copies": the segments that were copied completely and are in the "lineage" of a log (its epochs with
 * their start offsets); null where the real retention fails.
 */
public final class RemoteSegments {
    private RemoteSegments() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(Answer.JSON.writeValueAsString(answer(Answer.JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode request) throws Exception {
        RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
        TopicIdPartition partition = null;
        for (JsonNode record : request.get("records")) {
            RemoteLogMetadata metadata = new RemoteLogMetadataSerde().deserialize(Base64.getDecoder().decode(record.asText()));
            if (partition == null) {
                partition = metadata.topicIdPartition();
                store.maybeLoadPartition(partition);
            }
            try {
                take(store, metadata);
            } catch (RuntimeException refused) {
                // the consumer task logs it and goes on
            }
        }
        try {
            store.markInitialized(partition);
        } catch (RuntimeException forgotten) {
            return gone(request);
        }
        return told(store, partition, request);
    }

    private static ObjectNode gone(JsonNode request) {
        ObjectNode answer = Answer.JSON.createObjectNode().put("gone", true);
        answer.putObject("segments");
        answer.putArray("copies");
        ObjectNode read = answer.putObject("read");
        request.get("epochs").forEach(epoch -> {
            ArrayNode found = read.putArray(epoch.asText());
            for (long offset = 0; offset < request.get("end").asLong(); offset++) {
                found.addNull();
            }
        });
        return answer;
    }

    private static void take(RemotePartitionMetadataStore store, RemoteLogMetadata metadata) {
        if (metadata instanceof RemoteLogSegmentMetadata segment) {
            store.handleRemoteLogSegmentMetadata(segment);
        } else if (metadata instanceof RemoteLogSegmentMetadataUpdate update) {
            store.handleRemoteLogSegmentMetadataUpdate(update);
        } else {
            store.handleRemotePartitionDeleteMetadata((RemotePartitionDeleteMetadata) metadata);
        }
    }

    private static ObjectNode told(RemotePartitionMetadataStore store, TopicIdPartition partition, JsonNode request) throws Exception {
        ObjectNode answer = Answer.JSON.createObjectNode().put("gone", false);
        ObjectNode segments = answer.putObject("segments");
        Method list = RemotePartitionMetadataStore.class.getDeclaredMethod("listRemoteLogSegments", TopicIdPartition.class);
        list.setAccessible(true);
        Iterator<?> all = (Iterator<?>) list.invoke(store, partition);
        while (all.hasNext()) {
            RemoteLogSegmentMetadata each = (RemoteLogSegmentMetadata) all.next();
            segments.put(each.remoteLogSegmentId().id().toString(), each.state().name());
        }
        Method find = RemotePartitionMetadataStore.class.getDeclaredMethod(
            "remoteLogSegmentMetadata", TopicIdPartition.class, long.class, int.class);
        find.setAccessible(true);
        ObjectNode read = answer.putObject("read");
        for (JsonNode epoch : request.get("epochs")) {
            ArrayNode found = read.putArray(epoch.asText());
            for (long offset = 0; offset < request.get("end").asLong(); offset++) {
                Optional<?> segment = (Optional<?>) find.invoke(store, partition, offset, epoch.asInt());
                found.add(segment.map(each -> ((RemoteLogSegmentMetadata) each).remoteLogSegmentId().id().toString()).orElse(null));
            }
        }
        try {
            Set<String> copies = copies(store, partition, request);
            copies.forEach(answer.putArray("copies")::add);
        } catch (InvocationTargetException failed) {
            answer.putNull("copies");
        }
        return answer;
    }

    private static Set<String> copies(RemotePartitionMetadataStore store, TopicIdPartition partition, JsonNode request) throws Exception {
        TreeMap<Integer, Long> lineage = new TreeMap<>();
        request.get("lineage").forEach(entry -> lineage.put(entry.get(0).asInt(), entry.get(1).asLong()));
        Method filter = RemoteLogManager.class.getDeclaredMethod("buildFilteredLeaderEpochMap", NavigableMap.class);
        filter.setAccessible(true);
        NavigableMap<?, ?> epochs = (NavigableMap<?, ?>) filter.invoke(null, lineage);
        Method isWithin = RemoteLogManager.class.getDeclaredMethod(
            "isRemoteSegmentWithinLeaderEpochs", RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        isWithin.setAccessible(true);
        Method list = RemotePartitionMetadataStore.class.getDeclaredMethod("listRemoteLogSegments", TopicIdPartition.class, int.class);
        list.setAccessible(true);
        Set<String> found = new LinkedHashSet<>();
        for (Object epoch : epochs.navigableKeySet()) {
            Iterator<?> segments = (Iterator<?>) list.invoke(store, partition, epoch);
            while (segments.hasNext()) {
                RemoteLogSegmentMetadata each = (RemoteLogSegmentMetadata) segments.next();
                if (each.state() == RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                        && (boolean) isWithin.invoke(null, each, request.get("end").asLong(), epochs)) {
                    found.add(each.remoteLogSegmentId().id().toString());
                }
            }
        }
        return found;
    }
}
