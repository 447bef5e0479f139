"""Collectives without arrays: barriers, joining, and Python's objects."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

from . import _core
from ._work import Handle, Kind, start
from .basics import ProcessSet, global_process_set, number_of


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Blocks until all ranks of the set have come here."""
    Handle(start(Kind.BARRIER, None, process_set=process_set), lambda work: None).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and blocks until all ranks have said so.

    Meanwhile it takes part in the other ranks' allreduces: with zeros in a sum, and not at all in
    an average, a minimum, a maximum or a product.

    Returns:
        The rank that came last.
    """
    del device  # of Horovod's signature; nothing depends on it
    work = start(Kind.JOIN, None, process_set=global_process_set)
    return Handle(work, lambda done: done.last_joined()).wait()


def _bytes_of(results: list[Any]) -> list[bytes]:
    return [ctypes.string_at(address, shape[0]) for address, shape, _, _ in results]


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's object, by ``pickle``.

    Args:
        obj: what the root sends; other ranks' is not looked at.
        root_rank: a rank of the world.
    """
    is_root = _core.rank() == root_rank
    packed = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) if is_root else b""
    work = _core.exchange_object(False, packed, name, root_rank, number_of(process_set))
    return obj if is_root else pickle.loads(_bytes_of(work.results())[0])


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """A list of the objects of all ranks, in the order of the ranks, by ``pickle``."""
    packed = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
    work = _core.exchange_object(True, packed, name, 0, number_of(process_set))
    return [pickle.loads(one) for one in _bytes_of(work.results())]
