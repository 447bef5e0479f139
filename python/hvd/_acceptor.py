"""Accepts the workers of ``hvd.run()``, at a port that strangers reach, too."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable

from ._channel import Challenge, Channel, ChannelError
from ._descriptors import socket_above_standard_streams
from ._pending_handshakes import PendingHandshakes, origin_of, pending_limit

_PROOF_TIMEOUT = 5  # seconds
_PAUSE = 0.05  # seconds
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Makes all handshakes on one thread. A client that knows the key gets a thread of its own."""

    def __init__(
        self, listener: socket.socket, key: bytes, serve: Callable[[Channel], None]
    ) -> None:
        """``serve`` is called on the client's thread, and owns the channel."""
        listener.setblocking(False)
        self._listener = listener
        self._key = key
        self._serve = serve
        self._closed = False
        self._pending = PendingHandshakes[Challenge](pending_limit(), _PROOF_TIMEOUT)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="hvd run", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listens no more. Channels that are being served go on."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()

    def _run(self) -> None:
        with self._selector, self._listener:
            while not self._closed:
                self._step()
            while (challenge := self._pending.evict()) is not None:
                self._close(challenge)

    def _step(self) -> None:
        ready = [key for key, _ in self._selector.select(self._seconds_left())]
        for key in ready:
            if key.data is not None:
                self._read(key.data)
        # Only now, so that an answer that is there counts, however late this thread is.
        self._close_expired()
        # One client in a step, so that a flood drives out none whose answer is there.
        if any(key.data is None for key in ready):
            self._accept()

    def _seconds_left(self) -> float | None:
        deadline = self._pending.deadline()
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _accept(self) -> None:
        try:
            client, address = self._listener.accept()
            client = socket_above_standard_streams(client)
        except BlockingIOError:
            return
        except OSError as error:
            stranger = self._pending.evict() if error.errno in _EXHAUSTED else None
            if stranger is None:
                time.sleep(_PAUSE)  # close() ends this, or others free what is missing
            else:
                self._close(stranger)
            return
        try:
            client.setblocking(False)
            challenge = Challenge(client, self._key)
        except OSError:
            client.close()
            return
        evicted = self._pending.add(challenge, origin_of(address[0]), time.monotonic())
        if evicted is not None:
            self._close(evicted)
        try:
            self._selector.register(client, selectors.EVENT_READ, challenge)
        except OSError:  # the system has no room for it: the worker comes again
            self._pending.remove(challenge)
            client.close()

    def _read(self, challenge: Challenge) -> None:
        try:
            channel = challenge.read()
        except (EOFError, OSError, ChannelError):  # a stranger, or a worker that is gone
            self._pending.remove(challenge)
            self._close(challenge)
            return
        if channel is None:
            return
        self._pending.remove(challenge)
        self._selector.unregister(challenge.client)
        challenge.client.setblocking(True)
        try:
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()
        except RuntimeError:  # the system has no thread left: the worker comes again
            channel.close()

    def _close_expired(self) -> None:
        while (challenge := self._pending.take_expired(time.monotonic())) is not None:
            self._close(challenge)

    def _close(self, challenge: Challenge) -> None:
        self._selector.unregister(challenge.client)
        challenge.client.close()
