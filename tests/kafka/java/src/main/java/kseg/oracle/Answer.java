package kseg.oracle;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** What goes back for one request: named values, and byte strings too large or too binary for JSON. */
final class Answer {
    static final ObjectMapper JSON = new ObjectMapper();

    final ObjectNode values = JSON.createObjectNode();
    private final List<byte[]> parts = new ArrayList<>();

    /** Adds a byte string; returns its number. */
    int part(byte[] bytes) {
        parts.add(bytes);
        return parts.size() - 1;
    }

    /** Fields of an exception as the caller sees it: class, message, and where it came from (for people). */
    static void describe(ObjectNode into, Throwable error) {
        into.put("exception", error.getClass().getName());
        into.put("message", error.getMessage());
        StringBuilder trace = new StringBuilder(error.toString());
        for (StackTraceElement frame : error.getStackTrace()) {
            trace.append("\n  at ").append(frame);
        }
        into.put("trace", trace.toString());
    }

    /** Frame: length of the JSON (4 bytes, big-endian), the JSON with the lengths of the parts, the parts. */
    void send(DataOutputStream out) throws IOException {
        ArrayNode lengths = values.putArray("parts");
        parts.forEach(part -> lengths.add(part.length));
        byte[] head = JSON.writeValueAsBytes(values);
        out.writeInt(head.length);
        out.write(head);
        for (byte[] part : parts) {
            out.write(part);
        }
        out.flush();
    }
}
