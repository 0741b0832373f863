package kseg.oracle;

import kafka.Kafka;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.KafkaRaftClientDriver;
import org.apache.kafka.server.util.ShutdownableThread;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.ThreadContext;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.layout.PatternLayout;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Nodes of Kafka that share one JVM, whose classes are loaded and compiled for the first one: each is kafka.Kafka.main in a thread of its own.
 *
 * What a process has for itself, a node has by the context of its threads, which the threads that they start inherit: the log (with stdout
 * and stderr), the shutdown hooks, and its end. Exit.exit runs the hooks and then ends the log; Exit.halt ends the log at once. What the
 * node's threads still do then is seen by nobody, and its hooks close what it has open. Those of a node that failed while it started close
 * nothing: a cleaner or a move between log dirs would go on, and take a processor, until the process ends. They are told to end.
 *
 * A tool or a client is such a node as well: the main of its class, with a stdin and a stdout of its own. It ends when its main returns.
 *
 * Commands on stdin: `start NODE PROPERTIES LOG` (separated by tabs), `run NODE STDIN STDOUT STDERR CLASS ARGUMENT…` (the first three are
 * paths), `stop NODE` (as SIGTERM does), `abandon NODE` (as a halt), `leave`. One line on stdout says that a node has ended: `NODE STATUS`.
 */
public final class Nodes {
    private static final String KEY = "node";
    private static final String GONE = "none"; // the node of a thread that has ended its own, and is unwound through the handlers of Kafka
    private static final Map<String, Node> NODES = new ConcurrentHashMap<>();
    private static final PrintStream ANSWERS = System.out;
    private static final PrintStream ERRORS = System.err;

    private Nodes() {
    }

    /** Unwinds the thread that has ended its node. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static final class Node {
        private final String name;
        private final List<Runnable> hooks = new ArrayList<>();
        private final ThreadGroup threads; // with those that they start
        private OutputStream log;
        private volatile InputStream in = InputStream.nullInputStream();
        private volatile OutputStream out; // of a tool
        private volatile boolean isController; // and no broker
        private boolean isEnding;
        private volatile boolean hasEnded;

        Node(String name, String file) throws IOException {
            this.name = name;
            threads = new ThreadGroup("node-" + name);
            log = new FileOutputStream(file);
        }

        synchronized void write(byte[] bytes, int from, int length) {
            if (log != null) {
                try {
                    log.write(bytes, from, length);
                } catch (IOException error) {
                    error.printStackTrace(ERRORS);
                }
            }
        }

        /** What a tool prints, else the log. Not synchronized: a tool that waits for its reader can still be ended. */
        void print(byte[] bytes, int from, int length) {
            if (out == null) {
                write(bytes, from, length);
                return;
            }
            try {
                out.write(bytes, from, length);
            } catch (IOException error) {
                error.printStackTrace(ERRORS);
            }
        }

        /** False when it is ending already. */
        synchronized boolean begin() {
            boolean begins = !isEnding;
            isEnding = true;
            return begins;
        }

        synchronized void closeLog() {
            try {
                log.close();
                in.close();
                if (out != null) {
                    out.close();
                }
            } catch (IOException error) {
                error.printStackTrace(ERRORS);
            }
            log = null;
        }

        void sayEnded(int status) {
            synchronized (ANSWERS) {
                ANSWERS.println(name + " " + status);
                ANSWERS.flush();
            }
        }

        void runHooks() {
            List<Runnable> all;
            synchronized (this) {
                all = List.copyOf(hooks);
                hooks.clear(); // they hold all that the node had in memory
            }
            try {
                all.forEach(Runnable::run);
            } finally {
                hasEnded = true;
                endThreads();
            }
        }

        /** The last leader of several controllers would wait five seconds for its successor. */
        void leaveQuorum() {
            for (Thread thread : alive()) {
                if (isController && thread instanceof KafkaRaftClientDriver<?> driver) {
                    try {
                        Field client = KafkaRaftClientDriver.class.getDeclaredField("client");
                        client.setAccessible(true);
                        ((KafkaRaftClient<?>) client.get(driver)).shutdown(0);
                    } catch (ReflectiveOperationException error) {
                        throw new IllegalStateException(error);
                    }
                }
            }
        }

        private List<Thread> alive() {
            Thread[] alive = new Thread[2 * threads.activeCount() + 16];
            return Arrays.asList(alive).subList(0, threads.enumerate(alive));
        }

        /** Also later, since the thread that starts the node may have started others meanwhile. */
        void endThreads() {
            if (!hasEnded) {
                return;
            }
            for (Thread each : alive()) {
                if (each instanceof ShutdownableThread thread) {
                    thread.initiateShutdown();
                }
            }
        }

        void inThread(Runnable work) {
            Thread thread = new Thread(threads, () -> {
                ThreadContext.put(KEY, name);
                work.run();
            }, "node-" + name);
            thread.setDaemon(true);
            thread.start();
        }

        void exit(int status) {
            if (begin()) {
                inThread(() -> {
                    runHooks();
                    closeLog();
                    sayEnded(status);
                });
            }
        }

        void halt(int status) {
            if (begin()) {
                closeLog();
                leaveQuorum();
                inThread(() -> {
                    runHooks();
                    sayEnded(status);
                });
            }
        }
    }

    public static void main(String[] args) throws IOException {
        Exit.setExitProcedure((status, message) -> leave(false, status));
        Exit.setHaltProcedure((status, message) -> leave(true, status));
        Exit.setShutdownHookAdder((name, hook) -> {
            Node node = current();
            synchronized (node) {
                node.hooks.add(hook);
            }
        });
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            if (!(error instanceof Ended)) {
                System.err.print("Exception in thread \"" + thread.getName() + "\" ");
                error.printStackTrace();
            }
        });
        routeOutput();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(routedInput());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "start" -> start(new Node(words[1], words[3]), words[2]);
                case "run" -> run(words);
                case "stop" -> NODES.get(words[1]).exit(0);
                case "abandon" -> NODES.get(words[1]).halt(137);
                case "leave" -> System.exit(0); // the real one
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    private static void start(Node node, String properties) throws IOException {
        NODES.values().forEach(Node::endThreads);
        node.isController = Files.readAllLines(Path.of(properties)).contains("process.roles=controller");
        NODES.put(node.name, node);
        node.inThread(() -> Kafka.main(new String[] {properties}));
    }

    private static void run(String[] words) throws IOException {
        Node node = new Node(words[1], words[4]);
        NODES.put(node.name, node);
        node.inThread(() -> {
            int status = 1;
            try {
                node.in = new FileInputStream(words[2]); // a pipe: waits for the other side
                node.out = new FileOutputStream(words[3]);
                Class.forName(words[5]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 6, words.length));
                status = 0;
            } catch (InvocationTargetException thrown) {
                if (thrown.getCause() instanceof Ended ended) {
                    throw ended;
                }
                thrown.getCause().printStackTrace();
            } catch (ReflectiveOperationException | IOException error) {
                error.printStackTrace();
            }
            System.out.flush();
            node.exit(status);
        });
    }

    private static Node current() {
        String name = ThreadContext.get(KEY);
        return name == null ? null : NODES.get(name);
    }

    /** Never returns, as the procedures of a process. */
    private static void leave(boolean atOnce, int status) {
        Node node = current();
        if (GONE.equals(ThreadContext.get(KEY))) {
            throw new Ended();
        }
        if (node == null) {
            new IllegalStateException("a thread of no node ends its process").printStackTrace(ERRORS);
            Runtime.getRuntime().halt(3);
        } else if (atOnce) {
            node.halt(status);
        } else {
            node.exit(status);
        }
        ThreadContext.put(KEY, GONE);
        throw new Ended();
    }

    /** stdout or stderr of the node of the thread that writes. */
    private static final class Routed extends OutputStream {
        private final boolean isOut;

        Routed(boolean isOut) {
            this.isOut = isOut;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            Node node = current();
            if (node == null) {
                ERRORS.write(bytes, from, length);
            } else if (isOut) {
                node.print(bytes, from, length);
            } else {
                node.write(bytes, from, length);
            }
        }
    }

    private static InputStream routedInput() {
        return new InputStream() {
            @Override
            public int read() throws IOException {
                return current().in.read();
            }

            @Override
            public int read(byte[] bytes, int from, int length) throws IOException {
                return current().in.read(bytes, from, length);
            }

            @Override
            public int available() throws IOException {
                return current().in.available();
            }
        };
    }

    private static void routeOutput() {
        System.setOut(new PrintStream(new Routed(true), true));
        System.setErr(new PrintStream(new Routed(false), true));
        Configuration configuration = ((LoggerContext) LogManager.getContext(false)).getConfiguration();
        PatternLayout layout = (PatternLayout) configuration.getAppender("console").getLayout();
        AbstractAppender appender = new AbstractAppender("nodes", null, layout, false, Property.EMPTY_ARRAY) {
            @Override
            public void append(LogEvent event) {
                byte[] line = layout.toByteArray(event);
                Node node = current();
                if (node != null) {
                    node.write(line, 0, line.length);
                }
            }
        };
        appender.start();
        configuration.getRootLogger().removeAppender("console");
        configuration.getRootLogger().addAppender(appender, null, null);
        ((LoggerContext) LogManager.getContext(false)).updateLoggers();
    }
}
