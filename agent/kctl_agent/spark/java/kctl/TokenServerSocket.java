package kctl;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.security.MessageDigest;
import java.util.LinkedHashSet;

/** Takes connections that begin with a token, as Py4J's clients do. Of others no more bytes are read than it has. */
public final class TokenServerSocket extends ServerSocket {
    private static final int MOST_UNKNOWN = 256; // each has a thread of Py4J, which waits

    private final byte[] opening;
    private final LinkedHashSet unknown = new LinkedHashSet(); // the oldest first

    public TokenServerSocket(String token) throws IOException {
        opening = ("A\n" + token + "\n").getBytes("US-ASCII");
    }

    public Socket accept() throws IOException {
        Peer peer = new Peer();
        implAccept(peer);
        Socket oldest = null;
        synchronized (unknown) {
            unknown.add(peer);
            if (unknown.size() > MOST_UNKNOWN) {
                oldest = (Socket) unknown.iterator().next();
            }
        }
        if (oldest != null) {
            oldest.close();
        }
        return peer;
    }

    private void forget(Peer peer) {
        synchronized (unknown) {
            unknown.remove(peer);
        }
    }

    private InputStream checked(InputStream given) throws IOException {
        byte[] found = new byte[opening.length];
        new DataInputStream(given).readFully(found);
        if (!MessageDigest.isEqual(found, opening)) {
            throw new IOException("it does not begin with the token");
        }
        return new SequenceInputStream(new ByteArrayInputStream(found), given);
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
            forget(this);
            super.close();
        }
    }

    private final class Checked extends InputStream {
        private final Peer peer;
        private InputStream input;
        private boolean isChecked;

        Checked(Peer peer, InputStream input) {
            this.peer = peer;
            this.input = input;
        }

        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
        }

        public int read(byte[] bytes, int offset, int length) throws IOException {
            if (!isChecked) {
                input = checked(input);
                isChecked = true;
                forget(peer);
            }
            return input.read(bytes, offset, length);
        }
    }
}
