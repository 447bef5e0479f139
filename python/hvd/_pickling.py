"""Python's objects as bytes: by pickle, or by cloudpickle if pickle cannot and it is installed.

cloudpickle also takes functions and classes that are defined in a function. It copies those of the
main program, where pickle names them, so pickle comes first.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

try:
    from cloudpickle import CloudPickler  # pyright: ignore[reportMissingImports]

    _CloudPickler: Any = CloudPickler
except ImportError:
    _CloudPickler = None

has_cloudpickle = _CloudPickler is not None

Result = TypeVar("Result")

# As ``pickle.Pickler.reducer_override``, without self.
Overrides = Callable[[Any], Any]


@functools.cache
def _with_overrides(base: Any, overrides: Overrides) -> Any:
    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, one: Any) -> Any:
            reduced = overrides(one)
            others = getattr(super(), "reducer_override", None)  # those of cloudpickle
            return others(one) if reduced is NotImplemented and others is not None else reduced

    return Pickler


def _by_either(dump: Callable[[Any], Result]) -> Result:
    """``dump(Pickler)`` with pickle's, or with cloudpickle's if pickle's cannot."""
    try:
        return dump(pickle.Pickler)
    except Exception:
        if _CloudPickler is None:
            raise
        return dump(_CloudPickler)


def dumps_apart(value: Any, overrides: Overrides | None = None) -> tuple[bytes, list[Any]]:
    """Packs an object. The memory of its arrays is not in the bytes, but in the buffers."""

    def dump(base: Any) -> tuple[bytes, list[Any]]:
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        pickler = base if overrides is None else _with_overrides(base, overrides)
        pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
        return stream.getvalue(), buffers

    return _by_either(dump)


def _dumps(value: Any, base: Any) -> bytes:
    stream = io.BytesIO()
    base(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def dumps(value: Any) -> bytes:
    """Packs an object for a process of the same program."""
    return _by_either(lambda base: _dumps(value, base))


def dumps_by_value(value: Any) -> bytes:
    """Packs an object by cloudpickle, for a process of another program."""
    return _dumps(value, _CloudPickler)


class Unpicklable:
    """A substitute for an object that cannot be packed, so that no other rank waits for it."""

    def __init__(self, rank: int, error: BaseException) -> None:
        self.text = f"rank {rank} cannot pack its object: {type(error).__name__}: {error}"
