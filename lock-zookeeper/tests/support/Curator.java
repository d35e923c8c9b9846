import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        client.start();
        InterProcessMutex lock = new InterProcessMutex(client, arguments[1]);
        Scanner orders = new Scanner(System.in);
        System.out.println("ready");
        while (orders.hasNextLine()) {
            switch (orders.nextLine()) {
                case "try":
                    System.out.println(lock.acquire(0, TimeUnit.SECONDS) ? "held" : "busy");
                    break;
                case "acquire":
                    lock.acquire();
                    System.out.println("held");
                    break;
                case "release":
                    lock.release();
                    System.out.println("released");
                    break;
            }
        }
        client.close();
    }
}
