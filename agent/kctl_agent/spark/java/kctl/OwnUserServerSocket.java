package kctl;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Iterator;

/** Takes connections over IPv4 that a process of one user has opened, as the kernel has it. Of others no byte is read. */
public final class OwnUserServerSocket extends ServerSocket {
    private static final Path CONNECTIONS = Paths.get("/proc/net/tcp", new String[0]);
    private static final int TRIES = 3; // the kernel may miss a line of a table that changes while it is read

    private final String loopback;
    private final String uid;

    /** `loopback` is 127.0.0.1 as the kernel's table has it. */
    public OwnUserServerSocket(String loopback, String uid) throws IOException {
        this.loopback = loopback;
        this.uid = uid;
    }

    public Socket accept() throws IOException {
        while (true) {
            Socket peer = super.accept();
            if (isOwn(peer)) {
                return peer;
            }
            try {
                peer.close();
            } catch (IOException ignored) {
                // it is gone
            }
        }
    }

    /** By proc_pid_net(5): `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`; 01 is ESTABLISHED. */
    private boolean isOwn(Socket peer) {
        Object[] ports = {Integer.valueOf(peer.getPort()), Integer.valueOf(peer.getLocalPort())};
        String ends = String.format(" " + loopback + ":%04X " + loopback + ":%04X 01 ", ports);
        try {
            for (int i = 0; i < TRIES; i++) {
                Iterator lines = Files.readAllLines(CONNECTIONS).iterator();
                while (lines.hasNext()) {
                    String line = (String) lines.next();
                    if (line.contains(ends)) {
                        return line.trim().split("\\s+")[7].equals(uid);
                    }
                }
            }
        } catch (IOException unreadable) {
            return false;
        }
        return false;
    }
}
