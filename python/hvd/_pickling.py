"""Python's objects as bytes: by pickle, or by cloudpickle if pickle cannot and it is installed.

cloudpickle also takes functions and classes that are defined in a function. It copies those of the
main program, where pickle names them, so pickle comes first.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

try:
    from cloudpickle import CloudPickler  # pyright: ignore[reportMissingImports]

    _CloudPickler: Any = CloudPickler
except ImportError:
    _CloudPickler = None

has_cloudpickle = _CloudPickler is not None

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


def _dump(base: Any, value: Any, overrides: Overrides | None) -> tuple[bytes, list[Any]]:
    buffers: list[pickle.PickleBuffer] = []

    def take(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer)

    stream = io.BytesIO()
    pickler = base if overrides is None else _with_overrides(base, overrides)
    pickler(stream, protocol=5, buffer_callback=take).dump(value)
    return stream.getvalue(), buffers


def dumps_apart(value: Any, overrides: Overrides | None = None) -> tuple[bytes, list[Any]]:
    """Packs an object. The memory of its arrays is not in the bytes, but in the buffers."""
    try:
        return _dump(pickle.Pickler, value, overrides)
    except Exception:
        if _CloudPickler is None:
            raise
        return _dump(_CloudPickler, value, overrides)


def dumps(value: Any) -> bytes:
    """Packs an object for a process of the same program."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        if _CloudPickler is None:
            raise
        return dumps_by_value(value)


def dumps_by_value(value: Any) -> bytes:
    """Packs an object by cloudpickle, for a process of another program."""
    stream = io.BytesIO()
    _CloudPickler(stream).dump(value)
    return stream.getvalue()


class Unpicklable:
    """What a rank sends whose object cannot be packed, so that no other rank waits for it."""

    def __init__(self, error: BaseException) -> None:
        self.text = f"{type(error).__name__}: {error}"
