# altering_relay.py PORT SKIP once|always: takes the connections that this host makes to ports of
# others (iptables sends them here), passes their bytes on, and changes one bit of the first byte
# behind SKIP, in the first direction that gets there, or in all of them.
import socket
import struct
import sys
import threading

SO_ORIGINAL_DST = 80
MARK = 7  # of connections of its own, which iptables leaves alone

ALWAYS = sys.argv[3] == "always"

lock = threading.Lock()
altered = False


def original_destination(client):
    raw = client.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
    port, address = struct.unpack("!2xH4s8x", raw)
    return socket.inet_ntoa(address), port


def alter(data, before, skip):
    global altered
    with lock:
        if (altered and not ALWAYS) or not before <= skip < before + len(data):
            return data
        altered = True
    place = skip - before
    print("altered", flush=True)
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def pump(source, target, skip):
    passed = 0
    try:
        while data := source.recv(1 << 16):
            target.sendall(alter(data, passed, skip))
            passed += len(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in source, target:
            end.close()


def main():
    port, skip = map(int, sys.argv[1:3])
    listener = socket.create_server(("0.0.0.0", port))
    print("listening", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        try:
            server.connect(original_destination(client))
        except OSError:
            client.close()
            continue
        for one, other in (client, server), (server, client):
            threading.Thread(target=pump, args=(one, other, skip), daemon=True).start()


main()
