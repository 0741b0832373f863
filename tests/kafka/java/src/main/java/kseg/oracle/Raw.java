package kseg.oracle;

import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;

/** One request to one broker, without a client that looks for others, retries or chooses a version. */
final class Raw {
    private Raw() {
    }

    static AbstractResponse sent(String bootstrap, AbstractRequest request) throws Exception {
        String[] place = bootstrap.split(":");
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "raw-client", 1);
        try (Socket socket = new Socket(place[0], Integer.parseInt(place[1]))) {
            ByteBuffer bytes = request.serializeWithHeader(header);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(bytes.remaining());
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = in.readNBytes(in.readInt());
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        }
    }
}
