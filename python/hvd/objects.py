"""Collectives without arrays: barriers, joining, and Python's objects."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

from . import _core
from ._pickling import Unpicklable, dumps
from ._work import Handle, Kind, start
from .basics import ProcessSet, global_process_set, number_of
from .errors import InvalidArgumentError, disagreements


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


def _packed(obj: Any) -> tuple[bytes, Exception | None]:
    """The bytes, and the error if they only say that there is one."""
    try:
        return dumps(obj), None
    except Exception as error:  # noqa: BLE001 - raised when the other ranks know of it
        return dumps(Unpicklable(_core.rank(), error)), error


def _unpacked(packed: bytes) -> Any:
    obj = pickle.loads(packed)
    if isinstance(obj, Unpicklable):
        raise InvalidArgumentError(obj.text)
    return obj


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's object, by ``pickle``.

    Objects that ``pickle`` cannot pack are packed by ``cloudpickle``, if it is installed.

    Args:
        obj: what the root sends; other ranks' is not looked at.
        root_rank: a rank of the world.

    Raises:
        InvalidArgumentError: on all other ranks, if the root's object cannot be packed.
        DisagreementError: the ranks name different roots.
    """
    is_root = _core.rank() == root_rank
    packed, failure = _packed(obj) if is_root else (b"", None)
    with disagreements():
        work = _core.exchange_object(False, packed, name, root_rank, number_of(process_set))
    if failure is not None:
        raise failure
    return obj if is_root else _unpacked(_bytes_of(work.results())[0])


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """A list of the objects of all ranks, in the order of the ranks.

    They are packed as by ``broadcast_object()``.

    Raises:
        InvalidArgumentError: on all other ranks, if the object of a rank cannot be packed.
    """
    packed, failure = _packed(obj)
    with disagreements():
        work = _core.exchange_object(True, packed, name, 0, number_of(process_set))
    if failure is not None:
        raise failure
    return [_unpacked(part) for part in _bytes_of(work.results())]
