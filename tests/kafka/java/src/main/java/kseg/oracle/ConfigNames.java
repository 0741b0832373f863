package kseg.oracle;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import kafka.server.KafkaConfig;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.util.Collection;
import java.util.TreeSet;

/** The names of the configurations that this Kafka knows, as one JSON object on stdout. */
public final class ConfigNames {
    private ConfigNames() {
    }

    public static void main(String[] args) throws Exception {
        ConfigDef broker = KafkaConfig.configDef();
        ObjectNode names = Answer.JSON.createObjectNode();
        put(names.putArray("broker"), broker.names());
        put(names.putArray("broker_passwords"), broker.names().stream()
            .filter(name -> broker.configKeys().get(name).type == ConfigDef.Type.PASSWORD).toList());
        ConfigDef topic = LogConfig.configDefCopy();
        if (topic.configKeys().values().stream().anyMatch(key -> key.type == ConfigDef.Type.PASSWORD)) {
            throw new IllegalStateException("a topic configuration is a password: internal_topics/sensitive_configs knows none");
        }
        put(names.putArray("topic"), topic.names());
        put(names.putArray("group"), GroupConfig.configNames());
        System.out.println(Answer.JSON.writeValueAsString(names));
    }

    private static void put(ArrayNode array, Collection<String> names) {
        new TreeSet<>(names).forEach(array::add);
    }
}
