"""Python's objects as bytes: by cloudpickle if it is installed, which also takes functions and
classes that are defined in a function or in the main program, else by pickle."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

try:
    from cloudpickle import CloudPickler  # pyright: ignore[reportMissingImports]

    Pickler: Any = CloudPickler
    has_cloudpickle = True
except ImportError:
    Pickler = pickle.Pickler
    has_cloudpickle = False


def dumps(
    value: Any,
    pickler: Any = Pickler,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> bytes:
    """Packs an object. ``buffer_callback`` gets the memory of arrays, which is left out then."""
    stream = io.BytesIO()
    pickler(stream, protocol=5, buffer_callback=buffer_callback).dump(value)
    return stream.getvalue()


class Unpicklable:
    """What a rank sends whose object cannot be packed, so that no other rank waits for it."""

    def __init__(self, error: BaseException) -> None:
        self.text = f"{type(error).__name__}: {error}"
