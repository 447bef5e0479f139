# The connections of hvd.run(): what they prove, what attackers can do to them, and who is let in.
# One process.
import contextlib
import os
import pickle
import resource
import socket
import subprocess
import sys
import threading

import pytest

import hvd
from hvd._channel import Challenge, Channel, ChannelError, connect
from hvd._pending_handshakes import PendingHandshakes, origin_of, pending_limit

LIMIT = 120  # of what normally ends at once
KEY, NONCES = bytes(range(32)), bytes(64)
TAG = 32
MESSAGE = 8 + TAG + TAG  # and its bytes


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        end.settimeout(LIMIT)
    return one, other


def sent_by(*messages, is_caller=False, key=KEY):
    """The bytes that a side writes for these messages."""
    one, other = tcp_pair()
    with other:
        with Channel(one, key, NONCES, is_caller=is_caller) as channel:
            for message in messages:
                channel.send(message)
        with other.makefile("rb") as wire:
            return wire.read()


def caller_reads(wire, count=1, nonces=NONCES):
    """The message that the caller reads last, of so many."""
    one, other = tcp_pair()
    with one, Channel(other, KEY, nonces, is_caller=True) as channel:
        one.sendall(wire)
        one.shutdown(socket.SHUT_WR)
        for _ in range(count - 1):
            channel.receive()
        return channel.receive()


@pytest.fixture
def job():
    job = hvd.launch._Job(b"the call")
    yield job
    job.close()


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_messages_arrive_as_they_were_sent(size):
    message = os.urandom(size)
    with ends_of_a_channel() as (caller, worker):
        for sender, receiver in ((caller, worker), (worker, caller), (caller, worker)):
            sending = threading.Thread(target=sender.send, args=(message,))
            sending.start()
            assert receiver.receive() == message
            sending.join()


def test_no_bit_of_a_message_can_be_changed():
    wire = sent_by(b"a result")
    assert caller_reads(wire) == b"a result"
    for at in range(len(wire)):
        for bit in (0x01, 0x80):
            changed = bytearray(wire)
            changed[at] ^= bit
            with pytest.raises(ChannelError, match=r"127\.0\.0\.1 port .* was changed on its way"):
                caller_reads(changed)


def test_no_message_can_be_repeated_left_out_put_elsewhere_or_added():
    one, two = sent_by(b"one"), sent_by(b"one", b"two")[MESSAGE + 3 :]
    assert caller_reads(one + two, count=2) == b"two"
    for wire, count in ((one + one, 2), (two, 1), (two + one, 1), (one + bytes(MESSAGE), 2)):
        with pytest.raises(ChannelError):
            caller_reads(wire, count=count)


def test_no_message_can_be_turned_round_or_come_from_another_connection():
    with pytest.raises(ChannelError):
        caller_reads(sent_by(b"one", is_caller=True))
    for nonces in (bytes(63) + b"\1", b"\1" + bytes(63)):
        with pytest.raises(ChannelError):
            caller_reads(sent_by(b"one"), nonces=nonces)
    with pytest.raises(ChannelError):
        caller_reads(sent_by(b"one", key=bytes(32)))


def test_no_message_can_be_cut_short():
    wire = sent_by(b"a result")
    for size in range(len(wire)):
        with pytest.raises(EOFError):
            caller_reads(wire[:size])


def test_a_connection_ends_with_the_first_message_that_is_not_genuine():
    one, other = tcp_pair()
    channel = Channel(other, KEY, NONCES, is_caller=True)
    with one:
        one.sendall(bytes(MESSAGE) + sent_by(b"one"))
        with pytest.raises(ChannelError):
            channel.receive()
        with pytest.raises(OSError):
            channel.receive()
        with pytest.raises(OSError):
            channel.send(b"two")


# --- handshakes -----------------------------------------------------------------------------------


def admitted(client):
    """The channel of a client that has connected."""
    challenge, channel = Challenge(client, KEY), None
    while channel is None:
        channel = challenge.read()
    return channel


@contextlib.contextmanager
def ends_of_a_channel():
    """The caller's side and the worker's, after their handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channels = []
        thread = threading.Thread(target=lambda: channels.append(admitted(listener.accept()[0])))
        thread.start()
        with connect(listener.getsockname(), KEY) as worker:
            thread.join()
            with channels[0] as caller:
                yield caller, worker


def test_both_sides_have_to_know_the_key(job):
    with pytest.raises(ChannelError, match="did not prove that it knows the job's key"):
        connect(("127.0.0.1", job.port), b"another key")
    with socket.create_connection(("127.0.0.1", job.port)) as stranger:
        stranger.recv(32, socket.MSG_WAITALL)
        stranger.sendall(bytes(64))
        assert stranger.recv(TAG, socket.MSG_WAITALL) == bytes(TAG), "the caller proved itself"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_without_key():
            client, _ = listener.accept()
            with client:
                client.sendall(bytes(32))
                proof = client.recv(64, socket.MSG_WAITALL)
                client.sendall(proof[32:])  # the worker's own one

        thread = threading.Thread(target=answer_without_key)
        thread.start()
        with pytest.raises(ChannelError, match="did not prove"):
            connect(listener.getsockname(), KEY)
        thread.join()


def test_a_worker_that_was_taken_for_a_stranger_comes_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channels = []

        def accept_the_third():
            for size in (0, 32):
                client, _ = listener.accept()
                with client:
                    client.sendall(bytes(size))
            channels.append(admitted(listener.accept()[0]))

        thread = threading.Thread(target=accept_the_third)
        thread.start()
        with connect(listener.getsockname(), KEY):
            thread.join()
        channels[0].close()


@pytest.mark.parametrize("said", [b"", bytes(32)], ids=["at_once", "after_its_nonce"])
def test_a_worker_gives_up_a_caller_that_falls_silent(said, monkeypatch):
    monkeypatch.setattr(hvd._channel, "_CONNECT_TIMEOUT", 0)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say_no_more():
            client, _ = listener.accept()
            with client:
                client.sendall(said)
                over.wait(LIMIT)

        thread = threading.Thread(target=say_no_more)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(TimeoutError, match=f"127.0.0.1 port {port} does not answer"):
            connect(("127.0.0.1", port), KEY)
        over.set()
        thread.join()


def test_a_proved_connection_waits_for_messages_without_a_limit():
    with ends_of_a_channel() as (_, worker):
        assert worker._socket.gettimeout() is None


# --- an attacker who can change packets -----------------------------------------------------------


class Planted:
    """A pickle of it makes this file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Proxy:
    """Passes on the handshakes of its clients, and then sends bytes of its own one way."""

    def __init__(self, port, forged, to_worker):
        self._target = port
        self._forged = forged
        self._to_worker = to_worker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                worker, _ = self._listener.accept()
                caller = socket.create_connection(("127.0.0.1", self._target))
                for ends, to_worker in (((caller, worker), True), ((worker, caller), False)):
                    arguments = (*ends, self._forged if to_worker == self._to_worker else None)
                    threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    @staticmethod
    def _pass_on(source, target, forged):
        handshake = 2 * TAG  # a nonce and a proof, each way
        with contextlib.suppress(OSError):
            while handshake > 0 and (data := source.recv(handshake)):
                target.sendall(data)
                handshake -= len(data)
            if forged is not None and source.recv(1):
                target.sendall(forged)
            while data := source.recv(65536):
                if forged is None:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def forged_message(path):
    packed = pickle.dumps(Planted(str(path)))
    return len(packed).to_bytes(8, "big") + bytes(TAG) + packed + bytes(TAG)


@pytest.mark.parametrize("to_worker", [True, False])
def test_a_proxy_runs_no_code(to_worker, tmp_path):
    planted = tmp_path / "planted"
    job = hvd.launch._Job(hvd._worker.dumps((os.getpid, (), {})))
    proxy = Proxy(job.port, forged_message(planted), to_worker)
    job.port = proxy.port
    with pytest.raises(hvd.RunError, match="was changed on its way"):
        hvd.launch._run_job(job, ["-np", "1", sys.executable])
    proxy.close()
    assert not planted.exists()
    assert not job.results


# --- strangers ------------------------------------------------------------------------------------


def idle_clients(port, count, connections):
    return [
        connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
        for _ in range(count)
    ]


def number_of_descriptors():
    return len(os.listdir("/proc/self/fd"))


def wait_until_closed(client):
    """It is closed by the other side, after the nonce or before it."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(64):
            pass


def test_strangers_keep_no_worker_from_the_function(job):
    with contextlib.ExitStack() as connections:
        for said in (b"", b"GET / HTTP/1.1", b"\0\0\0\x20" + b"x" * 8, b"x" * 100):
            (stranger,) = idle_clients(job.port, 1, connections)
            stranger.sendall(said)
        with connect(("127.0.0.1", job.port), job._key) as worker:
            assert worker.receive() == b"the call"
            worker.send(pickle.dumps((0, 1, 2, b"the result")))
            assert worker.receive() == b"taken"
    assert job.results == {(0, 1): (2, b"the result")}


def test_a_flood_of_strangers_costs_few_descriptors_and_no_threads(job):
    threads, descriptors = threading.active_count(), number_of_descriptors()
    with contextlib.ExitStack() as connections:
        flood = idle_clients(job.port, 300, connections)
        with connect(("127.0.0.1", job.port), job._key) as worker:
            assert worker.receive() == b"the call"
            # The worker came last, so all of them have been accepted.
            assert threading.active_count() <= threads + 1
            assert number_of_descriptors() - descriptors <= len(flood) + pending_limit() + 2
        for stranger in flood:
            wait_until_closed(stranger)


FLOOD_AND_WORKER = """
import socket, sys
from hvd._channel import connect
address = ("127.0.0.1", int(sys.argv[1]))
key = bytes.fromhex(sys.stdin.readline())
flood = [socket.create_connection(address) for _ in range(100)]
with connect(address, key) as worker:
    print(bytes(worker.receive()).decode(), flush=True)
"""


def test_strangers_leave_descriptors_for_the_workers(monkeypatch):
    monkeypatch.setattr(hvd._acceptor, "_PROOF_TIMEOUT", 10 * LIMIT)  # which frees none in time
    job = hvd.launch._Job(b"the call")
    command = [sys.executable, "-c", FLOOD_AND_WORKER, str(job.port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with subprocess.Popen(command, text=True, **pipes) as others:
        with socket.socket() as lowest_that_is_free:
            few = lowest_that_is_free.fileno() + 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
        try:
            said, _ = others.communicate(job._key.hex() + "\n", timeout=LIMIT)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            others.kill()
            job.close()
    assert said == "the call\n"


def test_a_worker_that_was_let_in_is_served_after_the_job_has_closed_its_port(job):
    with connect(("127.0.0.1", job.port), job._key) as worker:
        job.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", job.port))
        assert worker.receive() == b"the call"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6")
def test_workers_may_come_over_ipv6(job):
    with connect(("::1", job.port), job._key) as worker:
        assert worker.receive() == b"the call"


# --- pending handshakes ---------------------------------------------------------------------------


def test_the_oldest_makes_room():
    pending = PendingHandshakes(3, 10)
    for key in (1, 2, 3):
        assert pending.add(key, "a", key) is None
    pending.remove(2)
    assert [pending.add(key, "a", key) for key in (4, 5, 6)] == [None, 1, 3]


def test_a_flood_drives_out_itself_and_nobody_else():
    pending = PendingHandshakes(100, 10)
    for key in range(5):
        pending.add(key, "honest", 0)
    evicted = [pending.add(key, "flood", 1) for key in range(5, 1000)]
    assert evicted[:95] == [None] * 95
    assert evicted[95:] == list(range(5, 905))
    # Nor do many origins with one client each drive out an origin with few.
    spread = PendingHandshakes(10, 10)
    for key in range(10):
        spread.add(key, str(key), 0)
    assert spread.add(10, "new", 1) == 0, "all have one: the oldest"
    assert spread.add(11, "new", 1) == 10, "the origin that has two"


def test_each_handshake_has_its_time():
    pending = PendingHandshakes(10, 10)
    assert pending.deadline() is None
    pending.add(1, "a", 0)
    pending.add(2, "b", 5)
    assert pending.deadline() == 10
    assert [pending.take_expired(now) for now in (9, 10, 10)] == [None, 1, None]
    assert pending.deadline() == 15
    assert [pending.evict(), pending.evict()] == [2, None]


def test_an_origin_is_what_one_party_has_one_of():
    assert origin_of("10.0.0.7") == origin_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert origin_of("2001:db8:1:2::1") == origin_of("2001:db8:1:2:ffff::2")
    assert origin_of("2001:db8:1:2::1") != origin_of("2001:db8:1:3::1")
    assert origin_of("fe80::1%lo") == origin_of("fe80::2")
