package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Base64;

/** Kafka's codecs on plain byte strings. */
final class Codecs {
    private Codecs() {
    }

    /** The codec of a request: "codec" and, where it has one, "level". */
    static Compression of(JsonNode request) {
        CompressionType type = CompressionType.forName(request.path("codec").asText("none"));
        if (!request.hasNonNull("level")) {
            return Compression.of(type).build();
        }
        int level = request.get("level").asInt();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(type.name + " has no levels");
        };
    }

    static void compress(JsonNode request, Answer answer) throws IOException {
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(1 << 16);
        try (OutputStream out = of(request).wrapForOutput(buffer, magic(request))) {
            out.write(bytes(request));
        }
        ByteBuffer written = buffer.buffer();
        written.flip();
        answer.part(Utils.toArray(written));
    }

    static void decompress(JsonNode request, Answer answer) throws IOException {
        ByteBuffer data = ByteBuffer.wrap(bytes(request));
        try (InputStream in = of(request).wrapForInput(data, magic(request), BufferSupplier.NO_CACHING)) {
            answer.part(in.readAllBytes());
        }
    }

    private static byte magic(JsonNode request) {
        return (byte) request.path("magic").asInt(2);
    }

    private static byte[] bytes(JsonNode request) {
        return Base64.getDecoder().decode(request.get("bytes").asText());
    }
}
