"""Descriptors that are not at the numbers of the standard streams, which a program may have closed.

Its output must not get into a connection, and the streams of a program that it starts take their
places.
"""

from __future__ import annotations

import fcntl
import os
import socket

_FIRST = 3  # the number behind theirs


def above_standard_streams(descriptor: int) -> int:
    """The descriptor, or its duplicate at a higher number, in its place."""
    if descriptor >= _FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(descriptor)


def socket_above_standard_streams(one: socket.socket) -> socket.socket:
    """The same for a socket."""
    if one.fileno() >= _FIRST:
        return one
    return socket.socket(fileno=above_standard_streams(one.detach()))
