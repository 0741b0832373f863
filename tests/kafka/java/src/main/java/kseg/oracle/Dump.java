package kseg.oracle;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Runs the real dump tool inside this process and catches what it prints. */
final class Dump {
    /** Thrown in place of ending the process. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;

        final int status;

        Ended(int status, String message) {
            super(message);
            this.status = status;
        }
    }

    private Dump() {
    }

    static void run(JsonNode request, Answer answer) {
        String[] args = new String[request.get("args").size()];
        for (int i = 0; i < args.length; i++) {
            args[i] = request.get("args").get(i).asText();
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status, message);
        });
        int status = 0;
        answer.values.putNull("exception");
        try (PrintStream outStream = new PrintStream(out, false, StandardCharsets.UTF_8);
             PrintStream errStream = new PrintStream(err, false, StandardCharsets.UTF_8)) {
            System.setOut(outStream);
            System.setErr(errStream);
            DumpLogSegments.main(args);
        } catch (Ended ended) {
            status = ended.status;
        } catch (Throwable error) {
            status = 1; // what java itself ends with when main throws
            Answer.describe(answer.values, error);
        } finally {
            System.setOut(formerOut);
            System.setErr(formerErr);
            Exit.resetExitProcedure();
        }
        answer.values.put("status", status);
        answer.part(out.toByteArray());
        answer.part(err.toByteArray());
    }
}
