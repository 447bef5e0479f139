# relay.py PORT RULE...: takes the connections that this host makes to ports of others (iptables
# sends them to PORT), passes their bytes on, and does to them what the rules say. It prints
# "listening", and the rule whenever it has done what one says. A rule is
#
#   ADDRESS/PORTS:CONNECTION:DIRECTION:AT:ACTION:AMOUNT      any/40000-40999:2:up:1500:drop:64
#
# ADDRESS ("any") and PORTS (A-B) are those that were connected to. CONNECTION is the number of a
# connection among those to the same ADDRESS/PORTS, from 0 on; "first" is whichever gets to AT
# first, "all" is each of them. DIRECTION is up (to the port), down, or both. The action follows
# behind AT bytes that have passed there:
#
#   alter       one bit of the next byte is changed
#   drop        the next AMOUNT bytes are left out
#   duplicate   the next AMOUNT bytes are passed on twice
#   reorder     the next AMOUNT bytes come behind as many that follow them
#   insert      AMOUNT bytes are passed on that nobody has sent
#   delay       the next bytes are held for AMOUNT milliseconds
#   truncate    both ends see the end of the connection
#   cut         both ends see a reset
#   silence     nothing passes any more, either way, and both ends see nothing of that
#   replace     where the bytes FROM come the bytes TO are passed on; AMOUNT is FROM=TO in
#               hexadecimal digits
#
# drop, duplicate and reorder take no more than has arrived together.
import socket
import struct
import sys
import threading
import time

SO_ORIGINAL_DST = 80
MARK = 7  # of connections of its own, which iptables leaves alone


class Rule:
    def __init__(self, text):
        self.text = text
        self.target, self.connection, self.direction, at, self.action, self.amount = text.split(":")
        self.address, ports = self.target.split("/")
        self.first_port, self.last_port = map(int, ports.split("-"))
        self.at = int(at)
        self.taken = False

    def is_at(self, where):
        address, port = where
        return self.address in ("any", address) and self.first_port <= port <= self.last_port

    def is_for(self, where, numbers, direction):
        return (
            self.is_at(where)
            and self.connection in ("first", "all", str(numbers[self.target]))
            and self.direction in ("both", direction)
        )


rules = [Rule(text) for text in sys.argv[2:]]
lock = threading.Lock()
counts = {rule.target: 0 for rule in rules}  # connections so far


def takes(rule):
    """Whether the action is this connection's to do; it says so."""
    with lock:
        if rule.taken and rule.connection == "first":
            return False
        rule.taken = True
        print(rule.text, flush=True)
        return True


class Connection:
    """Both sockets of one connection, and the end that a rule has made of it."""

    def __init__(self, client, server):
        self.client = client
        self.server = server
        self.is_silent = False

    def reset(self):
        for end in self.client, self.server:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it
            except OSError:
                pass
            end.close()

    def end(self):
        for end in self.client, self.server:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Pump:
    """Passes on one direction of a connection."""

    def __init__(self, connection, source, target, own):
        self.connection = connection
        self.source = source
        self.target = target
        self.replacements = [rule for rule in own if rule.action == "replace"]
        self.others = [rule for rule in own if rule.action != "replace"]
        self.others.sort(key=lambda rule: rule.at)
        self.passed = 0

    def run(self):
        try:
            while data := self.source.recv(1 << 16):
                self.pass_on(data)
            if not self.connection.is_silent:
                self.target.shutdown(socket.SHUT_WR)
        except OSError:
            if not self.connection.is_silent:
                self.connection.end()

    def pass_on(self, data):
        for rule in self.replacements:
            data = self.replace(rule, data)
        while self.others and self.others[0].at < self.passed + len(data):
            rule = self.others.pop(0)
            place = max(rule.at - self.passed, 0)
            self.send(data[:place])
            data = data[place:]
            if takes(rule):
                data = self.act(rule, data)
        self.send(data)

    def send(self, data):
        self.passed += len(data)
        if not self.connection.is_silent:
            self.target.sendall(data)

    def act(self, rule, data):
        """What is to be passed on in place of `data`."""
        if rule.action == "delay":
            time.sleep(int(rule.amount) / 1000)
        elif rule.action == "truncate":
            self.connection.end()
        elif rule.action == "cut":
            self.connection.reset()
        elif rule.action == "silence":
            self.connection.is_silent = True
        else:
            return self.change(rule, data)
        return data

    @staticmethod
    def change(rule, data):
        if rule.action == "alter":
            return bytes([data[0] ^ 4]) + data[1:]
        amount = int(rule.amount)
        if rule.action == "drop":
            return data[amount:]
        if rule.action == "duplicate":
            return data[:amount] + data
        if rule.action == "insert":
            return bytes(i * 37 % 256 for i in range(amount)) + data
        if rule.action == "reorder":
            amount = min(amount, len(data) // 2)
            return data[amount : 2 * amount] + data[:amount] + data[2 * amount :]
        raise ValueError(rule.text)

    @staticmethod
    def replace(rule, data):
        """Those that have arrived together: they are few enough for that."""
        old, new = map(bytes.fromhex, rule.amount.split("="))
        if old in data and takes(rule):
            return data.replace(old, new)
        return data


def original_destination(client):
    raw = client.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
    port, address = struct.unpack("!2xH4s8x", raw)
    return socket.inet_ntoa(address), port


def numbers_of(where):
    """This connection's numbers, by the targets of rules."""
    numbers = {}
    for target in {rule.target for rule in rules if rule.is_at(where)}:
        numbers[target] = counts[target]
        counts[target] += 1
    return numbers


def relay(client, where, numbers):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    try:
        server.connect(where)
    except OSError:
        client.close()
        return
    for end in client, server:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(client, server)
    for source, target, direction in (client, server, "up"), (server, client, "down"):
        own = [rule for rule in rules if rule.is_for(where, numbers, direction)]
        pump = Pump(connection, source, target, own)
        threading.Thread(target=pump.run, daemon=True).start()


def main():
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=128)
    print("listening", flush=True)
    while True:
        client, _ = listener.accept()
        where = original_destination(client)
        what = client, where, numbers_of(where)
        threading.Thread(target=relay, args=what, daemon=True).start()


main()
