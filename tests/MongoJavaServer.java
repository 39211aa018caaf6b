import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/** mongo-java-server on a port: in memory, or in a file if one is named. It is no MongoDB, and speaks its protocol. */
public class MongoJavaServer {
    public static void main(String[] words) throws Exception {
        MongoServer server = new MongoServer(words.length > 1 ? new H2Backend(words[1]) : new MemoryBackend());
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
        server.bind("127.0.0.1", Integer.parseInt(words[0]));
        Thread.currentThread().join();
    }
}
