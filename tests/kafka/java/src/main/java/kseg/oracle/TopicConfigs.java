package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;

/** What LogConfig says of topic configurations: an array of [name, value] on stdin, the names that it knows and the messages on stdout. */
public final class TopicConfigs {
    private TopicConfigs() {
    }

    public static void main(String[] args) throws Exception {
        ObjectNode found = Answer.JSON.createObjectNode();
        ArrayNode names = found.putArray("names");
        new TreeSet<>(LogConfig.configDefCopy().names()).forEach(names::add);
        ArrayNode messages = found.putArray("messages");
        for (JsonNode pair : Answer.JSON.readTree(System.in)) {
            Properties properties = new Properties();
            properties.put(pair.get(0).asText(), pair.get(1).asText());
            try {
                LogConfig.fromProps(Map.of(), properties);
                messages.add("");
            } catch (ConfigException thrown) {
                messages.add(thrown.getMessage());
            }
        }
        System.out.println(Answer.JSON.writeValueAsString(found));
    }
}
