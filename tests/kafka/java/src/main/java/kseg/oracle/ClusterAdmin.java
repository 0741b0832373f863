package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.SecurityUtils;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Changes of a running cluster through the Admin client, and what that tells of it as the lines of `kseg metadata --json` would.
 *
 * Stdin: the bootstrap servers, or a JSON object of client settings, then one JSON array a line: the name of a request and its operands. Stdout: one JSON answer a line.
 */
public final class ClusterAdmin {
    private static final ConfigEntry.ConfigSource[] DYNAMIC = {
        ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigEntry.ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG};

    private final Admin admin;

    private ClusterAdmin(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        try (Admin admin = Admin.create(settings(in.readLine()))) {
            ClusterAdmin cluster = new ClusterAdmin(admin);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                System.out.println(Answer.JSON.writeValueAsString(cluster.answer(Answer.JSON.readTree(line))));
                System.out.flush();
            }
        }
    }

    private static Map<String, Object> settings(String line) throws Exception {
        return new HashMap<>(line.startsWith("{") ? pairs(Answer.JSON.readTree(line)) : Map.of("bootstrap.servers", line));
    }

    private JsonNode answer(JsonNode request) throws Exception {
        switch (request.get(0).asText()) {
            case "create" -> admin.createTopics(List.of(
                new NewTopic(text(request, 1), request.get(2).asInt(), (short) 1).configs(pairs(request.get(3))))).all().get();
            case "create-on" -> admin.createTopics(List.of(
                new NewTopic(text(request, 1), assignments(request.get(2))).configs(pairs(request.get(3))))).all().get();
            case "reassign" -> {
                Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
                assignments(request.get(2)).forEach((partition, nodes) -> wanted.put(new TopicPartition(text(request, 1), partition),
                    nodes.isEmpty() ? Optional.empty() : Optional.of(new NewPartitionReassignment(nodes))));
                admin.alterPartitionReassignments(wanted).all().get();
            }
            case "unregister" -> admin.unregisterBroker(request.get(1).asInt()).all().get();
            case "delete" -> admin.deleteTopics(List.of(text(request, 1))).all().get();
            case "partitions" -> admin.createPartitions(
                Map.of(text(request, 1), NewPartitions.increaseTo(request.get(2).asInt()))).all().get();
            case "config" -> config(request);
            case "acl" -> admin.createAcls(List.of(binding(request))).all().get();
            case "remove-acl" -> admin.deleteAcls(List.of(binding(request).toFilter())).all().get();
            case "scram" -> admin.alterUserScramCredentials(List.<UserScramCredentialAlteration>of(
                new UserScramCredentialUpsertion(text(request, 1), new ScramCredentialInfo(
                    ScramMechanism.fromMechanismName(text(request, 2)), request.get(3).asInt()), "secret"))).all().get();
            case "remove-scram" -> admin.alterUserScramCredentials(List.<UserScramCredentialAlteration>of(
                new UserScramCredentialDeletion(text(request, 1), ScramMechanism.fromMechanismName(text(request, 2))))).all().get();
            case "quota" -> quota(request);
            case "feature" -> admin.updateFeatures(Map.of(text(request, 1), new FeatureUpdate(
                (short) request.get(2).asInt(), FeatureUpdate.UpgradeType.fromCode(request.get(3).asInt()))),
                new UpdateFeaturesOptions()).all().get();
            case "move" -> admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(
                text(request, 1), request.get(2).asInt(), request.get(3).asInt()), text(request, 4))).all().get();
            case "token" -> admin.createDelegationToken(new CreateDelegationTokenOptions()
                .renewers(List.of(SecurityUtils.parseKafkaPrincipal(text(request, 1))))
                .maxLifetimeMs(request.get(2).asLong())).delegationToken().get();
            case "end-token" -> admin.expireDelegationToken(tokens().get(request.get(1).asInt()).hmac(),
                new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            case "describe-more" -> {
                return describeMore();
            }
            case "describe" -> {
                return describe(request.get(1));
            }
            default -> throw new IllegalArgumentException(request.toString());
        }
        return Answer.JSON.createObjectNode().put("ok", true);
    }

    private static String text(JsonNode request, int at) {
        return request.get(at).isNull() ? null : request.get(at).asText();
    }

    /** {"partition": [replicas]}. */
    private static Map<Integer, List<Integer>> assignments(JsonNode node) {
        Map<Integer, List<Integer>> found = new HashMap<>();
        node.properties().forEach(each -> {
            List<Integer> nodes = new ArrayList<>();
            each.getValue().forEach(id -> nodes.add(id.asInt()));
            found.put(Integer.parseInt(each.getKey()), nodes);
        });
        return found;
    }

    private static Map<String, String> pairs(JsonNode node) {
        Map<String, String> pairs = new HashMap<>();
        node.properties().forEach(each -> pairs.put(each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
        return pairs;
    }

    private void config(JsonNode request) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.valueOf(text(request, 1)), text(request, 2));
        List<AlterConfigOp> changes = new ArrayList<>();
        pairs(request.get(3)).forEach((name, value) -> changes.add(new AlterConfigOp(new ConfigEntry(name, value),
            value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    private static AclBinding binding(JsonNode request) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(text(request, 1)), text(request, 2), PatternType.valueOf(text(request, 3))),
            new AccessControlEntry(text(request, 4), text(request, 5), AclOperation.valueOf(text(request, 6)),
                AclPermissionType.valueOf(text(request, 7))));
    }

    private void quota(JsonNode request) throws Exception {
        Double value = request.get(3).isNull() ? null : request.get(3).asDouble();
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(pairs(request.get(1))),
            List.of(new ClientQuotaAlteration.Op(text(request, 2), value))))).all().get();
    }

    // --- what there is

    private ObjectNode describe(JsonNode resources) throws Exception {
        ObjectNode answer = Answer.JSON.createObjectNode();
        ArrayNode rows = answer.putArray("rows");
        answer.put("cluster_id", admin.describeCluster().clusterId().get());
        topics(rows);
        configs(rows, resources);
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, range) ->
            rows.addObject().put("type", "feature").put("name", name).put("level", range.maxVersionLevel()));
        for (Node node : admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get()) {
            ObjectNode row = rows.addObject().put("type", "broker").put("broker_id", node.id()).put("rack", node.rack());
            row.put("fenced", node.isFenced()).put("host", node.host()).put("port", node.port());
        }
        access(rows);
        ArrayNode reassignments = answer.putArray("reassignments");
        admin.listPartitionReassignments().reassignments().get().forEach((partition, each) -> {
            ObjectNode row = reassignments.addObject().put("topic", partition.topic()).put("partition", partition.partition());
            row.set("adding_replicas", Answer.JSON.valueToTree(each.addingReplicas()));
            row.set("removing_replicas", Answer.JSON.valueToTree(each.removingReplicas()));
        });
        logDirs(answer.putArray("log_dirs"));
        return answer;
    }

    private void topics(ArrayNode rows) throws Exception {
        Collection<String> names = admin.listTopics(
            new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> {
            rows.addObject().put("type", "topic").put("topic", name).put("topic_id", topic.topicId().toString())
                .put("partitions", topic.partitions().size());
            for (TopicPartitionInfo each : topic.partitions()) {
                ObjectNode row = rows.addObject().put("type", "partition").put("topic", name)
                    .put("topic_id", topic.topicId().toString()).put("partition", each.partition());
                row.put("leader", each.leader() == null || each.leader().isEmpty() ? -1 : each.leader().id());
                nodes(row.putArray("replicas"), each.replicas());
                nodes(row.putArray("isr"), each.isr());
                nodes(row.putArray("elr"), each.elr());
                nodes(row.putArray("last_known_elr"), each.lastKnownElr());
            }
        });
    }

    private static void nodes(ArrayNode array, List<Node> nodes) {
        Optional.ofNullable(nodes).orElse(List.of()).forEach(node -> array.add(node.id()));
    }

    private void configs(ArrayNode rows, JsonNode resources) throws Exception {
        List<ConfigResource> wanted = new ArrayList<>();
        resources.forEach(each -> wanted.add(new ConfigResource(
            ConfigResource.Type.valueOf(each.get(0).asText()), each.get(1).asText())));
        admin.describeConfigs(wanted).all().get().forEach((resource, config) -> config.entries().forEach(entry -> {
            boolean isDefault = resource.type() == ConfigResource.Type.BROKER && !resource.name().isEmpty()
                && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
            boolean isOfBroker = resource.type() != ConfigResource.Type.BROKER && entry.source().name().contains("BROKER");
            if (List.of(DYNAMIC).contains(entry.source()) && !isDefault && !isOfBroker) {
                rows.addObject().put("type", "config").put("resource_type", resource.type().name())
                    .put("resource_name", resource.name()).put("name", entry.name()).put("value", entry.value())
                    .put("sensitive", entry.isSensitive());
            }
        }));
    }

    private void access(ArrayNode rows) throws Exception {
        for (AclBinding acl : admin.describeAcls(AclBindingFilter.ANY).values().get()) {
            rows.addObject().put("type", "acl").put("resource_type", acl.pattern().resourceType().name())
                .put("resource_name", acl.pattern().name()).put("pattern_type", acl.pattern().patternType().name())
                .put("principal", acl.entry().principal()).put("host", acl.entry().host())
                .put("operation", acl.entry().operation().name()).put("permission", acl.entry().permissionType().name());
        }
        admin.describeUserScramCredentials().all().get().forEach((user, described) ->
            described.credentialInfos().forEach(each -> rows.addObject().put("type", "scram").put("user", user)
                .put("mechanism", each.mechanism().mechanismName()).put("iterations", each.iterations())));
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, quotas) ->
            quotas.forEach((key, value) -> {
                ObjectNode row = rows.addObject().put("type", "quota").put("key", key).put("value", value);
                ObjectNode parts = row.putObject("entity");
                entity.entries().forEach(parts::put);
            }));
    }

    private void logDirs(ArrayNode found) throws Exception {
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).forEach((path, description) ->
            description.replicaInfos().forEach((partition, replica) -> found.addObject().put("path", path)
                .put("topic", partition.topic()).put("partition", partition.partition()).put("future", replica.isFuture())));
    }

    private List<DelegationToken> tokens() throws Exception {
        return admin.describeDelegationToken().delegationTokens().get().stream()
            .sorted(Comparator.comparing((DelegationToken token) -> token.tokenInfo().issueTimestamp())
                .thenComparing(token -> token.tokenInfo().tokenId())).toList();
    }

    /** Delegation tokens, which directories are cordoned, how large the logs are, and who votes. */
    private ObjectNode describeMore() throws Exception {
        ObjectNode answer = Answer.JSON.createObjectNode();
        ArrayNode rows = answer.putArray("tokens");
        for (DelegationToken each : tokens()) {
            TokenInformation info = each.tokenInfo();
            ObjectNode row = rows.addObject().put("token_id", info.tokenId()).put("owner", info.owner().toString())
                .put("requester", info.tokenRequester().toString()).put("issue_timestamp", info.issueTimestamp())
                .put("max_timestamp", info.maxTimestamp()).put("expiration_timestamp", info.expiryTimestamp());
            ArrayNode renewers = row.putArray("renewers");
            info.renewers().forEach(renewer -> renewers.add(renewer.toString()));
        }
        ArrayNode logs = answer.putArray("logs");
        ArrayNode cordoned = answer.putArray("cordoned");
        admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).forEach((path, description) -> {
            if (description.isCordoned()) {
                cordoned.add(path);
            }
            description.replicaInfos().forEach((partition, replica) -> logs.addObject().put("log_dir", path)
                .put("topic", partition.topic()).put("partition", partition.partition()).put("future", replica.isFuture())
                .put("bytes", replica.size()));
        });
        ArrayNode voters = answer.putArray("voters");
        admin.describeMetadataQuorum().quorumInfo().get().voters().forEach(voter -> voters.addObject()
            .put("voter_id", voter.replicaId()).put("directory_id", voter.replicaDirectoryId().toString()));
        return answer;
    }
}
