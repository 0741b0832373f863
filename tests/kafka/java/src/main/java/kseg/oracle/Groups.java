package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.OffsetFetchRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.OffsetCommitRequest;
import org.apache.kafka.common.requests.OffsetFetchRequest;
import org.apache.kafka.common.requests.OffsetFetchResponse;
import org.apache.kafka.common.requests.ReadShareGroupStateRequest;
import org.apache.kafka.common.requests.ReadShareGroupStateResponse;
import org.apache.kafka.common.requests.ReadShareGroupStateSummaryRequest;
import org.apache.kafka.common.requests.ReadShareGroupStateSummaryResponse;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;
import org.apache.kafka.tools.consumer.group.ShareGroupCommand;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;

/**
 * Groups of a running broker: what Admin says about all of them, and a share group's member, which no other client of the tests has.
 *
 * argv: bootstrap servers. One JSON object on each line of stdin, one answer a line:
 *   {"do":"describe"}                                       "groups", "members", "offsets", "share_offsets", lists of rows; a streams
 *                                                           group that the coordinator fails to describe has a "failure"
 *   {"do":"share","group","topic","records","rejected"}     joins, reads so many records, rejects those at these offsets and accepts the
 *                                                           others of even offset, releases the rest. The member stays.
 *   {"do":"delete_groups","groups"}  {"do":"delete_offsets","group","topic","partition"}
 *   {"do":"streams","group","members","state"}              heartbeats of these members in turns until the group has this state. Those that
 *                                                           join need "subtopologies": "id", "sources", "sinks" (topics), "repartitions"
 *                                                           ("name", "partitions") and "changelogs" (names). "standbys": how
 *                                                           many replicas of a task the group is to have, if anything else than now
 *   {"do":"streams_leave","group","member"}
 *   {"do":"expiring_commit","group","topic","partition","offset","retention_ms"}    as clients before 2.1 did
 *   {"do":"share_states","keys"}                            "states": what the share coordinator has of each key ("group", "topic_id",
 *                                                           "partition"); "error" is 42 for those without a start offset
 *   {"do":"commit","group","topic","partition","offset"}    as an administrator
 *   {"do":"unstable","groups"}                              "groups": of each ("group", "places": [topic, partition]) the places with an
 *                                                           offset in an open transaction
 *   {"do":"tool","words"}                                   "printed": by kafka-consumer-groups.sh
 *   {"do":"share_tool","words"}                             "printed": by kafka-share-groups.sh
 */
public final class Groups {
    private static final Duration LIMIT = Duration.ofMinutes(5);

    private final Map<String, Object> config;
    private final Admin admin;
    private final Map<String, KafkaShareConsumer<byte[], byte[]>> members = new HashMap<>();
    private final Map<String, StreamsMember> streamsMembers = new HashMap<>();

    private final String bootstrap;

    private Groups(String bootstrap) {
        this.bootstrap = bootstrap;
        config = Map.of("bootstrap.servers", bootstrap);
        admin = Admin.create(config);
    }

    public static void main(String[] args) throws Exception {
        Groups groups = new Groups(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = groups.answer(Answer.JSON.readTree(line));
            System.out.println(Answer.JSON.writeValueAsString(answer));
            System.out.flush();
        }
        if (groups.members.isEmpty()) {
            groups.admin.close();
        } else {
            System.exit(0); // members leave when their sessions end
        }
    }

    private ObjectNode answer(JsonNode request) throws Exception {
        ObjectNode answer = Answer.JSON.createObjectNode();
        switch (request.get("do").asText()) {
            case "describe" -> describeAtOnce(answer);
            case "share" -> share(request, answer);
            case "delete_groups" -> admin.deleteConsumerGroups(texts(request.get("groups"))).all().get();
            case "delete_offsets" -> admin.deleteConsumerGroupOffsets(group(request), Set.of(place(request))).all().get();
            case "streams" -> streams(request);
            case "streams_leave" -> streamsHeartbeat(request, request.get("member").asText(), -1);
            case "share_states" -> shareStates(request, answer.putArray("states"));
            case "expiring_commit" -> expiringCommit(request);
            case "tool" -> answer.put("printed", printedByTool(ConsumerGroupCommand::main, request.get("words")));
            case "share_tool" -> answer.put("printed", printedByTool(ShareGroupCommand::main, request.get("words")));
            case "unstable" -> unstable(request, answer.putObject("groups"));
            case "commit" -> admin.alterConsumerGroupOffsets(group(request), Map.of(place(request),
                new OffsetAndMetadata(request.get("offset").asLong(), "by an administrator"))).all().get();
            default -> throw new IllegalArgumentException(request.toString());
        }
        return answer;
    }

    /** The tool's main in this process: a process of its own takes a second of processor time to load its classes. */
    private String printedByTool(Consumer<String[]> tool, JsonNode words) {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        all.addAll(texts(words));
        PrintStream stdout = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            tool.accept(all.toArray(new String[0]));
        } finally {
            System.setOut(stdout);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static String group(JsonNode request) {
        return request.get("group").asText();
    }

    private static TopicPartition place(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static List<String> texts(JsonNode names) {
        List<String> found = new ArrayList<>();
        names.forEach(name -> found.add(name.asText()));
        return found;
    }

    /** Once more where a group became one of another type between two of the requests. */
    private void describeAtOnce(ObjectNode answer) throws Exception {
        long endNs = System.nanoTime() + LIMIT.toNanos();
        while (true) {
            try {
                describe(answer);
                return;
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof GroupIdNotFoundException) || System.nanoTime() > endNs) {
                    throw error;
                }
                answer.removeAll();
            }
        }
    }

    private void describe(ObjectNode answer) throws Exception {
        ArrayNode groups = answer.putArray("groups");
        ArrayNode members = answer.putArray("members");
        ArrayNode offsets = answer.putArray("offsets");
        ArrayNode shareOffsets = answer.putArray("share_offsets");
        for (GroupListing listing : admin.listGroups().all().get()) {
            GroupType type = listing.type().orElseThrow();
            String name = listing.groupId();
            ObjectNode listed = groups.addObject().put("group", name).put("group_type", type.toString().toLowerCase())
                .put("state", listing.groupState().orElseThrow().toString());
            if (type == GroupType.SHARE) {
                var described = admin.describeShareGroups(List.of(name)).all().get().get(name);
                listed.put("epoch", described.groupEpoch()).put("assignment_epoch", described.targetAssignmentEpoch());
                described.members().forEach(member -> member(members, name, member.consumerId(), null, member.clientId(),
                    member.host(), member.assignment().topicPartitions()).put("member_epoch", member.memberEpoch()));
                admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(name).get()
                    .forEach((place, info) -> {
                        // null: its state has no start offset yet
                        row(shareOffsets, name, place).put("start_offset", info == null ? null : (Long) info.startOffset())
                            .put("lag", info == null ? null : info.lag().orElse(null));
                    });
                continue;
            }
            if (type == GroupType.STREAMS) {
                StreamsGroupDescription described;
                try {
                    described = admin.describeStreamsGroups(List.of(name)).all().get().get(name);
                } catch (ExecutionException e) {
                    listed.put("failure", e.getCause().getClass().getSimpleName());
                    continue;
                }
                listed.put("epoch", described.groupEpoch()).put("assignment_epoch", described.targetAssignmentEpoch());
                described.members().forEach(member -> {
                    ObjectNode row = member(members, name, member.memberId(), member.instanceId().orElse(null), member.clientId(),
                        member.clientHost(), Set.of()).put("member_epoch", member.memberEpoch());
                    tasks(row.putArray("active_tasks"), member.assignment().activeTasks());
                    tasks(row.putArray("standby_tasks"), member.assignment().standbyTasks());
                    tasks(row.putArray("warmup_tasks"), member.assignment().warmupTasks());
                });
            } else if (type == GroupType.CLASSIC && !List.of("", "consumer").contains(listing.protocol())) {
                admin.describeClassicGroups(List.of(name)).all().get().get(name).members().forEach(member -> member(members, name,
                    member.consumerId(), member.groupInstanceId().orElse(null), member.clientId(), member.host(),
                    member.assignment().topicPartitions()).putNull("member_epoch"));
            } else if (!listing.isSimpleConsumerGroup()) {
                var described = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                listed.put("epoch", described.groupEpoch().orElse(null)).put("assignment_epoch", described.targetAssignmentEpoch().orElse(null));
                described.members().forEach(member -> member(members, name, member.consumerId(),
                    member.groupInstanceId().orElse(null), member.clientId(), member.host(), member.assignment().topicPartitions())
                    .put("member_epoch", member.memberEpoch().orElse(null)));
            }
            admin.listConsumerGroupOffsets(Map.of(name, new ListConsumerGroupOffsetsSpec())).partitionsToOffsetAndMetadata(name).get()
                .forEach((place, committed) -> row(offsets, name, place).put("offset", committed.offset())
                    .put("leader_epoch", committed.leaderEpoch().orElse(null)).put("metadata", committed.metadata()));
        }
    }

    private static void tasks(ArrayNode rows, List<StreamsGroupMemberAssignment.TaskIds> tasks) {
        tasks.forEach(task -> task.partitions().forEach(partition ->
            rows.addObject().put("subtopology", task.subtopologyId()).put("partition", partition)));
    }

    private static ObjectNode row(ArrayNode rows, String group, TopicPartition place) {
        return rows.addObject().put("group", group).put("topic", place.topic()).put("partition", place.partition());
    }

    private static ObjectNode member(ArrayNode rows, String group, String id, String instance, String client, String host,
            Collection<TopicPartition> assigned) {
        ObjectNode row = rows.addObject().put("group", group).put("member_id", id).put("group_instance_id", instance)
            .put("client_id", client).put("client_host", host);
        ArrayNode assignment = row.putArray("assignment");
        assigned.forEach(place -> assignment.addObject().put("topic", place.topic()).put("partition", place.partition()));
        return row;
    }

    /** In the words of a Kafka Streams client: a member's first heartbeat joins, the others acknowledge what was assigned. */
    private void streams(JsonNode request) throws Exception {
        String wanted = request.get("state").asText();
        if (request.has("standbys")) {
            configure(group(request), "streams.num.standby.replicas", request.get("standbys").asText());
        }
        long endNs = System.nanoTime() + LIMIT.toNanos();
        while (System.nanoTime() < endNs) {
            for (String member : texts(request.get("members"))) {
                streamsHeartbeat(request, member, streamsMembers.containsKey(member) ? 1 : 0);
            }
            var described = admin.describeStreamsGroups(List.of(group(request))).all().get().get(group(request));
            if (described.groupState().toString().equals(wanted)) {
                return;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("the group is not " + wanted);
    }

    /** kind: 0 to join, 1 to stay, -1 to leave. */
    private void streamsHeartbeat(JsonNode request, String member, int kind) throws Exception {
        StreamsMember known = streamsMembers.getOrDefault(member, new StreamsMember(0, List.of(), List.of()));
        var data = new StreamsGroupHeartbeatRequestData().setGroupId(group(request)).setMemberId(member)
            .setMemberEpoch(kind < 0 ? -1 : known.epoch);
        if (kind >= 0) {
            data.setActiveTasks(known.tasks).setStandbyTasks(known.standbys).setWarmupTasks(List.of());
        }
        if (kind == 0) {
            data.setRebalanceTimeoutMs(1_800_000).setTopology(topology(request)).setProcessId("process of " + member)
                .setClientTags(List.of());
        }
        var response = (StreamsGroupHeartbeatResponse) sent(new StreamsGroupHeartbeatRequest.Builder(data).build((short) 0));
        if (response.data().errorCode() != 0) {
            throw new IllegalStateException(response.data().toString());
        }
        if (kind < 0) {
            streamsMembers.remove(member);
        } else {
            streamsMembers.put(member, new StreamsMember(response.data().memberEpoch(),
                acknowledged(response.data().activeTasks(), known.tasks), acknowledged(response.data().standbyTasks(), known.standbys)));
        }
    }

    /** What a member has from now on; an answer without tasks leaves it as it is. */
    private static List<StreamsGroupHeartbeatRequestData.TaskIds> acknowledged(
            List<StreamsGroupHeartbeatResponseData.TaskIds> told, List<StreamsGroupHeartbeatRequestData.TaskIds> known) {
        return told == null ? known : told.stream().map(each -> new StreamsGroupHeartbeatRequestData.TaskIds()
            .setSubtopologyId(each.subtopologyId()).setPartitions(each.partitions())).toList();
    }

    private static StreamsGroupHeartbeatRequestData.Topology topology(JsonNode request) {
        List<StreamsGroupHeartbeatRequestData.Subtopology> parts = new ArrayList<>();
        for (JsonNode each : request.get("subtopologies")) {
            parts.add(new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId(each.get("id").asText())
                .setSourceTopics(texts(each.path("sources"))).setRepartitionSinkTopics(texts(each.path("sinks")))
                .setRepartitionSourceTopics(internalTopics(each.path("repartitions")))
                .setStateChangelogTopics(internalTopics(each.path("changelogs"))));
        }
        return new StreamsGroupHeartbeatRequestData.Topology().setEpoch(1).setSubtopologies(parts);
    }

    private static List<StreamsGroupHeartbeatRequestData.TopicInfo> internalTopics(JsonNode topics) {
        List<StreamsGroupHeartbeatRequestData.TopicInfo> found = new ArrayList<>();
        topics.forEach(topic -> found.add(new StreamsGroupHeartbeatRequestData.TopicInfo().setName(topic.get("name").asText())
            .setPartitions(topic.get("partitions").asInt()).setReplicationFactor((short) 1).setTopicConfigs(List.of())));
        return found;
    }

    /** What a member of a streams group was told last. */
    private record StreamsMember(int epoch, List<StreamsGroupHeartbeatRequestData.TaskIds> tasks,
            List<StreamsGroupHeartbeatRequestData.TaskIds> standbys) {
    }

    private void configure(String group, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(
            new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }

    private void expiringCommit(JsonNode request) throws Exception {
        var partition = new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(request.get("partition").asInt())
            .setCommittedOffset(request.get("offset").asLong()).setCommittedMetadata("");
        var data = new OffsetCommitRequestData().setGroupId(group(request)).setGenerationIdOrMemberEpoch(-1).setMemberId("")
            .setRetentionTimeMs(request.get("retention_ms").asLong()).setTopics(List.of(
                new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(request.get("topic").asText())
                    .setPartitions(List.of(partition))));
        sent(OffsetCommitRequest.Builder.forTopicNames(data).build((short) 2));
    }

    private void unstable(JsonNode request, ObjectNode answer) throws Exception {
        for (JsonNode each : request.get("groups")) {
            Map<String, OffsetFetchRequestData.OffsetFetchRequestTopics> topics = new HashMap<>();
            each.get("places").forEach(place -> topics.computeIfAbsent(place.get(0).asText(), name ->
                new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(name)).partitionIndexes().add(place.get(1).asInt()));
            var data = new OffsetFetchRequestData().setRequireStable(true).setGroups(List.of(
                new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(group(each)).setTopics(List.copyOf(topics.values()))));
            var response = (OffsetFetchResponse) sent(OffsetFetchRequest.Builder.forTopicNames(data, true).build((short) 9));
            ArrayNode found = answer.putArray(group(each));
            response.group(group(each)).topics().forEach(topic -> topic.partitions().forEach(partition -> {
                if (partition.errorCode() == Errors.UNSTABLE_OFFSET_COMMIT.code()) {
                    found.addArray().add(topic.name()).add(partition.partitionIndex());
                }
            }));
        }
    }

    private AbstractResponse sent(AbstractRequest request) throws Exception {
        return Raw.sent(config.get("bootstrap.servers").toString(), request);
    }

    /** By the two requests of a partition's leader: the summary says of which leader epoch the state is, which the other one needs. */
    private void shareStates(JsonNode request, ArrayNode states) throws Exception {
        for (JsonNode key : request.get("keys")) {
            Uuid topic = Uuid.fromString(key.get("topic_id").asText());
            int number = key.get("partition").asInt();
            var asked = new ReadShareGroupStateSummaryRequestData.PartitionData().setPartition(number).setLeaderEpoch(Integer.MAX_VALUE);
            var summary = ((ReadShareGroupStateSummaryResponse) sent(new ReadShareGroupStateSummaryRequest.Builder(
                new ReadShareGroupStateSummaryRequestData().setGroupId(group(key)).setTopics(List.of(
                    new ReadShareGroupStateSummaryRequestData.ReadStateSummaryData().setTopicId(topic).setPartitions(List.of(asked)))))
                .build())).data().results().get(0).partitions().get(0);
            var wanted = new ReadShareGroupStateRequestData.PartitionData().setPartition(number).setLeaderEpoch(Math.max(0, summary.leaderEpoch()));
            var read = ((ReadShareGroupStateResponse) sent(new ReadShareGroupStateRequest.Builder(
                new ReadShareGroupStateRequestData().setGroupId(group(key)).setTopics(List.of(
                    new ReadShareGroupStateRequestData.ReadStateData().setTopicId(topic).setPartitions(List.of(wanted)))))
                .build())).data().results().get(0).partitions().get(0);
            ObjectNode row = states.addObject().put("error", Math.max(summary.errorCode(), read.errorCode()));
            row.put("state_epoch", read.stateEpoch()).put("leader_epoch", summary.leaderEpoch()).put("start_offset", summary.startOffset())
                .put("delivery_complete_count", summary.deliveryCompleteCount());
            ArrayNode batches = row.putArray("batches");
            read.stateBatches().forEach(batch -> batches.addObject().put("first_offset", batch.firstOffset())
                .put("last_offset", batch.lastOffset()).put("delivery_state", batch.deliveryState())
                .put("delivery_count", batch.deliveryCount()));
        }
    }

    private void share(JsonNode request, ObjectNode answer) throws Exception {
        String group = group(request);
        configure(group, "share.auto.offset.reset", "earliest");
        KafkaShareConsumer<byte[], byte[]> member = members.computeIfAbsent(group, name -> {
            Map<String, Object> own = new HashMap<>(config);
            own.put("group.id", name);
            own.put("client.id", "share-client");
            own.put("share.acknowledgement.mode", "explicit");
            own.put("max.poll.records", 10);
            return new KafkaShareConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        });
        member.subscribe(List.of(request.get("topic").asText()));
        Set<Long> rejected = new HashSet<>();
        request.get("rejected").forEach(offset -> rejected.add(offset.asLong()));
        ArrayNode read = answer.putArray("read");
        int wanted = request.get("records").asInt();
        for (int rounds = 0; read.size() < wanted && rounds < 100; rounds++) {
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(500))) {
                AcknowledgeType type = rejected.contains(record.offset()) ? AcknowledgeType.REJECT
                    : record.offset() % 2 == 0 ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE;
                member.acknowledge(record, type);
                read.add(record.offset());
            }
            member.commitSync(Duration.ofSeconds(20)).values().forEach(problem -> problem.ifPresent(error -> {
                throw error;
            }));
        }
    }
}
