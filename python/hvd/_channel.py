"""The connection between the program that calls ``hvd.run()`` and one of its workers.

Both sides know a key. It proves each of them to the other, and then every message: an attacker who
can change packets can end the connection, but can neither change a message nor add one, repeat one,
leave one out, or turn one round. Messages are not encrypted.

    caller: nonce
    worker: nonce, proof
    caller: proof
    both: messages

The unit is a block: bytes whose number the receiver knows, and their tag. The tag is an HMAC-SHA256
of the block's number and bytes. Its key is one for each direction, made from the shared key and
both nonces. A proof is an empty block. A message is two blocks, so that a changed length is noticed
before anybody waits for so many bytes: its length, and its bytes.
"""

from __future__ import annotations

import hmac
import random
import secrets
import socket
import time

from .errors import HvdError

_NONCE_SIZE = 32
_TAG_SIZE = 32
_LENGTH_SIZE = 8
_CALLER = b"hvd.run() from the caller"
_WORKER = b"hvd.run() from the worker"
_CONNECT_TIMEOUT = 60  # seconds, for all attempts together
_SHORTEST_ATTEMPT = 1


class ChannelError(HvdError):
    """The other side does not know the key, or what it sent was changed on its way."""


def _hmac(key: bytes, *parts: bytes | bytearray) -> bytes:
    code = hmac.new(key, digestmod="sha256")
    for part in parts:
        code.update(part)
    return code.digest()


class _Direction:
    """The tags of the blocks that one side sends, one after the other."""

    def __init__(self, key: bytes, sender: bytes, nonces: bytes | bytearray) -> None:
        self._key = _hmac(key, sender, nonces)
        self._blocks = 0

    def next_tag(self, block: bytes | bytearray) -> bytes:
        number = self._blocks.to_bytes(8, "big")
        self._blocks += 1
        return _hmac(self._key, number, block)


def _receive(connected: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = connected.recv_into(rest)
        if count == 0:
            raise EOFError("hvd.run(): the other side has closed the connection")
        rest = rest[count:]
    return data


class Channel:
    """One side of a connection. It owns the socket. One thread may use it."""

    def __init__(
        self, connected: socket.socket, key: bytes, nonces: bytes | bytearray, *, is_caller: bool
    ) -> None:
        """``nonces``: that of the caller and that of the worker."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        host, port = connected.getpeername()[:2]
        self.peer = f"{host.removeprefix('::ffff:')} port {port}"  # an IPv4 address in its own form
        mine, theirs = (_CALLER, _WORKER) if is_caller else (_WORKER, _CALLER)
        self._sent = _Direction(key, mine, nonces)
        self._received = _Direction(key, theirs, nonces)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def prove(self) -> None:
        """Sends what shows that this side knows the key."""
        self._send_block(b"")

    def is_proof(self, tag: bytes | bytearray) -> bool:
        """Whether this shows that the other side knows the key."""
        return hmac.compare_digest(self._received.next_tag(b""), tag)

    def send(self, message: bytes | bytearray) -> None:
        """Blocks until the system has taken all of it."""
        self._send_block(len(message).to_bytes(_LENGTH_SIZE, "big"))
        self._send_block(message)

    def receive(self) -> bytearray:
        """The next message of the other side.

        Raises:
            ChannelError: what came is not that message. The connection is closed.
            EOFError: the other side has closed the connection.
        """
        length = self._receive_block(_LENGTH_SIZE)
        return self._receive_block(int.from_bytes(length, "big"))

    def _send_block(self, block: bytes | bytearray) -> None:
        self._socket.sendall(block)
        self._socket.sendall(self._sent.next_tag(block))

    def _receive_block(self, size: int) -> bytearray:
        block = _receive(self._socket, size)
        tag = _receive(self._socket, _TAG_SIZE)
        if not hmac.compare_digest(self._received.next_tag(block), tag):
            self.close()
            raise ChannelError(f"hvd.run(): what {self.peer} sent was changed on its way")
        return block


def _unproved(channel: Channel) -> ChannelError:
    return ChannelError(f"hvd.run(): {channel.peer} did not prove that it knows the job's key")


class Challenge:
    """The caller's part of the handshake with a client that has just connected.

    It never blocks unless the socket does.
    """

    def __init__(self, client: socket.socket, key: bytes) -> None:
        self.client = client
        self._key = key
        self._nonce = secrets.token_bytes(_NONCE_SIZE)
        self._answer = b""
        client.sendall(self._nonce)  # a new connection has room for it

    def read(self) -> Channel | None:
        """Reads what has come of the answer. The channel, once the client has proved itself.

        Raises:
            ChannelError: the client does not know the key, and was told so.
            EOFError, OSError: the client is gone.
        """
        missing = _NONCE_SIZE + _TAG_SIZE - len(self._answer)
        try:
            data = self.client.recv(missing)
        except BlockingIOError:
            return None
        if not data:
            raise EOFError
        self._answer += data
        if len(data) < missing:
            return None
        nonce, proof = self._answer[:_NONCE_SIZE], self._answer[_NONCE_SIZE:]
        channel = Channel(self.client, self._key, self._nonce + nonce, is_caller=True)
        if not channel.is_proof(proof):
            self.client.sendall(bytes(_TAG_SIZE))  # which is no proof either
            raise _unproved(channel)
        channel.prove()
        return channel


def connect(address: tuple[str, int], key: bytes) -> Channel:
    """Connects a worker to its caller, over IPv4 or IPv6.

    A caller that is crowded with strangers may take this worker for one of them, and close the
    connection before it is proved. Then this connects again, for a while.

    Raises:
        ChannelError: the other side does not know the key.
        EOFError, OSError: there is no connection. TimeoutError: the caller did not answer.
    """
    try:
        return _connect_until(time.monotonic() + _CONNECT_TIMEOUT, address, key)
    except TimeoutError:
        host, port = address
        raise TimeoutError(f"hvd.run(): {host} port {port} does not answer") from None


def _connect_until(give_up: float, address: tuple[str, int], key: bytes) -> Channel:
    while True:
        left = max(give_up - time.monotonic(), _SHORTEST_ATTEMPT)
        connected = socket.create_connection(address, timeout=left)
        try:
            channel = _introduce(connected, key)
            connected.settimeout(None)  # a function may take as long as it likes
            return channel
        except BaseException as error:
            connected.close()
            is_gone = isinstance(error, (EOFError, OSError))
            if not is_gone or time.monotonic() > give_up:
                raise
        time.sleep(random.uniform(0.05, 0.2))


def _introduce(connected: socket.socket, key: bytes) -> Channel:
    """The worker's part of the handshake."""
    nonce = secrets.token_bytes(_NONCE_SIZE)
    nonces = _receive(connected, _NONCE_SIZE) + nonce
    channel = Channel(connected, key, nonces, is_caller=False)
    connected.sendall(nonce)
    channel.prove()
    if not channel.is_proof(_receive(connected, _TAG_SIZE)):
        raise _unproved(channel)
    return channel
