package kctl;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.MessageDigest;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Accepts connections that begin with a token, as Py4J's clients do. Reads at most as many bytes of others. */
public final class TokenServerSocket extends ServerSocket {
    private static final int MOST_UNKNOWN = 256; // each has a thread of Py4J, which waits

    private final byte[] opening;
    private final ConcurrentLinkedQueue unknown = new ConcurrentLinkedQueue(); // oldest first

    public TokenServerSocket(String token) throws IOException {
        opening = ("A\n" + token + "\n").getBytes("US-ASCII");
    }

    public Socket accept() throws IOException {
        Peer peer = new Peer();
        implAccept(peer);
        unknown.add(peer);
        if (unknown.size() > MOST_UNKNOWN) {
            Socket oldest = (Socket) unknown.poll();
            if (oldest != null) {
                oldest.close();
            }
        }
        return peer;
    }

    private final class Peer extends Socket {
        private InputStream input;

        public InputStream getInputStream() throws IOException {
            if (input == null) {
                input = new Checked(this, super.getInputStream());
            }
            return input;
        }

        public void close() throws IOException {
            unknown.remove(this);
            super.close();
        }
    }

    private final class Checked extends FilterInputStream {
        private final Peer peer;
        private boolean isChecked;

        Checked(Peer peer, InputStream input) {
            super(input);
            this.peer = peer;
        }

        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        public int read(byte[] bytes, int offset, int length) throws IOException {
            if (!isChecked) {
                byte[] found = new byte[opening.length];
                new DataInputStream(in).readFully(found);
                if (!MessageDigest.isEqual(found, opening)) {
                    throw new IOException("it does not begin with the token");
                }
                in = new SequenceInputStream(new ByteArrayInputStream(found), in);
                isChecked = true;
                unknown.remove(peer);
            }
            return in.read(bytes, offset, length);
        }
    }
}
