import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator's InterProcessMutex; it does what loops.py describes. */
public class Curator {
    static CuratorFramework client;
    static String base;

    public static void main(String[] arguments) throws Exception {
        base = arguments[1];
        client = CuratorFrameworkFactory.newClient(arguments[0], 40_000, 10_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        Map<String, InterProcessMutex> known = new HashMap<>();
        answer("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "pair" -> {
                    long[] times = pair(known.computeIfAbsent(words[1], Curator::mutex));
                    answer(times[0] + " " + times[1]);
                }
                case "throughput" -> answer("" + throughput(words[1], Integer.parseInt(words[2]), Double.parseDouble(words[3])));
                case "contend" -> answer(contend(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Long.parseLong(words[4])));
                default -> throw new IllegalArgumentException(line);
            }
        }
        client.close();
    }

    static InterProcessMutex mutex(String name) {
        return new InterProcessMutex(client, base + "/" + name + "-curator");
    }

    static long[] pair(InterProcessMutex mutex) throws Exception {
        long begin = System.nanoTime();
        mutex.acquire();
        long held = System.nanoTime();
        mutex.release();
        return new long[] {held - begin, System.nanoTime() - held};
    }

    static long throughput(String name, int tasks, double seconds) throws Exception {
        AtomicLong count = new AtomicLong();
        long end = System.nanoTime() + (long) (seconds * 1e9);
        together(0, tasks, task -> {
            InterProcessMutex mutex = mutex(name + "-" + task);
            while (System.nanoTime() < end) {
                checked(mutex::acquire);
                checked(mutex::release);
                count.incrementAndGet();
            }
        });
        return count.get();
    }

    static String contend(String name, int first, int afterLast, long end) throws Exception {
        ConcurrentLinkedQueue<String> holds = new ConcurrentLinkedQueue<>();
        together(first, afterLast, waiter -> {
            InterProcessMutex mutex = mutex(name);
            for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
                checked(mutex::acquire);
                long acquired = System.nanoTime();
                long released = System.nanoTime();
                checked(mutex::release);
                holds.add(waiter + " " + asked + " " + acquired + " " + released);
            }
        });
        return String.join("\n", holds);
    }

    interface Step {
        void run() throws Exception;
    }

    static void checked(Step step) {
        try {
            step.run();
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    static void together(int first, int afterLast, IntConsumer work) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = first; i < afterLast; i++) {
            int number = i;
            threads.add(new Thread(() -> work.accept(number)));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void answer(String text) {
        System.out.println(text.isEmpty() ? "." : text + "\n.");
        System.out.flush();
    }
}
