"""The types in which floating-point elements travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Compression:
    """For the argument ``compression``. What is narrower on its way is rounded there."""

    none = 0
    fp16 = 1
    bf16 = 2


class Compressor:
    """Makes tensors smaller for their way. One of your own has these two functions."""

    # The compression that hvd's runtime does instead, without a copy; None: only compress() and
    # decompress() are used.
    built_in: int | None = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what ``decompress()`` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The reverse."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    built_in: int | None = Compression.none

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


class Narrower(Compressor):
    """Sends wider floating-point elements in the type ``narrow``; a framework has the rest."""

    narrow: Any = None

    @staticmethod
    def is_wider(tensor: Any) -> bool:
        """Whether its elements are floating-point numbers of more than 16 bits."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor with elements of another type."""
        raise NotImplementedError

    @classmethod
    def compress(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, tensor: Any
    ) -> tuple[Any, Any]:
        """The tensor in the narrow type if its elements are wider, and its own type."""
        narrowed = cls.cast(tensor, cls.narrow) if cls.is_wider(tensor) else tensor
        return narrowed, tensor.dtype

    @classmethod
    def decompress(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, tensor: Any, ctx: Any
    ) -> Any:
        """The tensor in its own type again."""
        return tensor if tensor.dtype == ctx else cls.cast(tensor, ctx)


def built_in_of(compression: Any) -> int | None:
    """``Compressor.built_in``, or the number itself; a class of a program's own may have none."""
    return compression if isinstance(compression, int) else getattr(compression, "built_in", None)


class TakesCompressors:
    """Adapters of frameworks whose calls take a Compressor; a program's own is around the call."""

    def compression(self, given: Any) -> int:
        """As in Adapter."""
        return built_in_of(given) or 0


def compressed(
    compression: Any, tensors: Sequence[Any], reduce: Callable[[list[Any], int], list[Any]]
) -> list[Any]:
    """What ``reduce(tensors, number)`` gives; a program's own compression is around the call."""
    number = built_in_of(compression)
    if number is not None:
        return reduce(list(tensors), number)
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = reduce([tensor for tensor, _ in pairs], Compression.none)
    return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs)]
