package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.DescribeTransactionsRequestData;
import org.apache.kafka.common.message.ListTransactionsRequestData;
import org.apache.kafka.common.requests.DescribeTransactionsRequest;
import org.apache.kafka.common.requests.DescribeTransactionsResponse;
import org.apache.kafka.common.requests.ListTransactionsRequest;
import org.apache.kafka.common.requests.ListTransactionsResponse;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * Transactional producers of Kafka's own client, and what Admin says of transactions as the lines of `kseg transactions --json` would.
 *
 * Argument: the bootstrap servers. Stdin: one JSON array a line, the name of a request and its operands. Stdout: one JSON answer a line.
 */
public final class Transactions {
    private final Admin admin;
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private Transactions(Admin admin, String bootstrap) {
        this.admin = admin;
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            Transactions transactions = new Transactions(admin, args[0]);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                System.out.println(Answer.JSON.writeValueAsString(transactions.answer(Answer.JSON.readTree(line))));
                System.out.flush();
            }
            transactions.producers.values().forEach(each -> each.close(Duration.ZERO));
        }
    }

    private JsonNode answer(JsonNode request) throws Exception {
        String id = request.size() > 1 ? request.get(1).asText() : "";
        switch (request.get(0).asText()) {
            case "begin" -> producer(id).beginTransaction();
            case "send" -> {
                for (int at = 0; at < request.get(4).asInt(); at++) {
                    producer(id).send(new ProducerRecord<>(request.get(2).asText(), request.get(3).asInt(), null, new byte[] {1})).get();
                }
            }
            case "offsets" -> producer(id).sendOffsetsToTransaction(
                Map.of(new TopicPartition(request.get(3).asText(), request.get(4).asInt()), new OffsetAndMetadata(request.get(5).asLong())),
                new ConsumerGroupMetadata(request.get(2).asText()));
            case "commit" -> producer(id).commitTransaction();
            case "abort" -> producer(id).abortTransaction();
            case "describe" -> {
                ObjectNode answer = Answer.JSON.createObjectNode();
                ids(answer.putArray("ids"));
                producers(answer.putArray("producers"));
                return answer;
            }
            case "ends" -> {
                ObjectNode answer = Answer.JSON.createObjectNode();
                ends(id, answer.putArray("ends"));
                return answer;
            }
            case "listed" -> {
                ObjectNode answer = Answer.JSON.createObjectNode();
                ArrayNode names = answer.putArray("ids");
                ObjectNode states = answer.putObject("states");
                admin.listTransactions().all().get().forEach(each -> {
                    names.add(each.transactionalId());
                    states.put(each.transactionalId(), each.state().toString());
                });
                return answer;
            }
            case "ids" -> {
                ObjectNode answer = Answer.JSON.createObjectNode();
                coordinatorIds(answer.putArray("ids"));
                return answer;
            }
            default -> throw new IllegalArgumentException(request.toString());
        }
        return Answer.JSON.createObjectNode().put("ok", true);
    }

    private KafkaProducer<byte[], byte[]> producer(String id) {
        return producers.computeIfAbsent(id, name -> {
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "transactional.id", name, "transaction.timeout.ms", 7_200_000, "linger.ms", 0);
            KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            made.initTransactions();
            return made;
        });
    }

    private void ids(ArrayNode ids) throws Exception {
        List<String> names = new ArrayList<>();
        for (TransactionListing listing : admin.listTransactions().all().get()) {
            names.add(listing.transactionalId());
        }
        Map<String, TransactionDescription> described = names.isEmpty() ? Map.of() : admin.describeTransactions(names).all().get();
        for (String name : new TreeSet<>(described.keySet())) {
            TransactionDescription each = described.get(name);
            ObjectNode row = ids.addObject();
            row.put("transactional_id", name).put("producer_id", each.producerId()).put("producer_epoch", each.producerEpoch());
            row.put("state", each.state().toString()).put("timeout_ms", each.transactionTimeoutMs());
            if (each.transactionStartTimeMs().isPresent()) {
                row.put("start_timestamp", each.transactionStartTimeMs().getAsLong());
            } else {
                row.putNull("start_timestamp");
            }
            ArrayNode partitions = row.putArray("partitions");
            each.topicPartitions().stream().map(TopicPartition::toString).sorted().forEach(partitions::add);
        }
    }

    /** The same of the bootstrap broker alone, by its own answers: Admin asks every broker, also one that does not answer. */
    private void coordinatorIds(ArrayNode ids) throws Exception {
        var all = (ListTransactionsResponse) Raw.sent(bootstrap, new ListTransactionsRequest.Builder(new ListTransactionsRequestData()).build());
        List<String> names = all.data().transactionStates().stream().map(each -> each.transactionalId()).sorted().toList();
        var asked = new DescribeTransactionsRequest.Builder(new DescribeTransactionsRequestData().setTransactionalIds(names)).build();
        for (var each : ((DescribeTransactionsResponse) Raw.sent(bootstrap, asked)).data().transactionStates()) {
            if (each.errorCode() != 0) {
                throw new IllegalStateException(each.toString());
            }
            ObjectNode row = ids.addObject();
            row.put("transactional_id", each.transactionalId()).put("producer_id", each.producerId()).put("producer_epoch", each.producerEpoch());
            row.put("state", each.transactionState()).put("timeout_ms", each.transactionTimeoutMs());
            row.put("start_timestamp", each.transactionStartTimeMs() < 0 ? null : each.transactionStartTimeMs());
            ArrayNode partitions = row.putArray("partitions");
            each.topics().forEach(topic -> topic.partitions().stream().sorted().forEach(number -> partitions.add(topic.topic() + "-" + number)));
        }
    }

    private void ends(String topic, ArrayNode rows) throws Exception {
        List<TopicPartition> places = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream()
            .map(each -> new TopicPartition(topic, each.partition())).toList();
        var starts = offsets(places, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
        var ends = offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        var stable = offsets(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
        for (TopicPartition place : places) {
            rows.addObject().put("partition", place.partition()).put("log_start_offset", starts.get(place).offset())
                .put("log_end_offset", ends.get(place).offset()).put("last_stable_offset", stable.get(place).offset());
        }
    }

    private Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> offsets(List<TopicPartition> places, OffsetSpec which,
            IsolationLevel isolation) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        places.forEach(place -> asked.put(place, which));
        return admin.listOffsets(asked, new ListOffsetsOptions(isolation)).all().get();
    }

    private void producers(ArrayNode rows) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        admin.describeTopics(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()).allTopicNames().get().forEach(
            (topic, description) -> description.partitions().forEach(each -> partitions.add(new TopicPartition(topic, each.partition()))));
        admin.describeProducers(partitions).all().get().forEach((partition, states) -> {
            for (ProducerState state : states.activeProducers()) {
                ObjectNode row = rows.addObject();
                row.put("topic", partition.topic()).put("partition", partition.partition()).put("producer_id", state.producerId());
                row.put("producer_epoch", state.producerEpoch()).put("last_sequence", state.lastSequence());
                row.put("last_timestamp", state.lastTimestamp());
                if (state.coordinatorEpoch().isPresent() && state.coordinatorEpoch().getAsInt() >= 0) {
                    row.put("coordinator_epoch", state.coordinatorEpoch().getAsInt());
                } else {
                    row.putNull("coordinator_epoch");
                }
                if (state.currentTransactionStartOffset().isPresent()) {
                    row.put("transaction_start_offset", state.currentTransactionStartOffset().getAsLong());
                } else {
                    row.putNull("transaction_start_offset");
                }
            }
        });
    }
}
