"""The types in which gradients travel."""

from __future__ import annotations

from typing import Any

import torch

import hvd.compression


class Compressor:
    """Makes tensors smaller for their way. One of your own has these two functions."""

    # The compression that hvd's runtime does instead, without a copy; None: only compress() and
    # decompress() are used.
    built_in: int | None = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what ``decompress()`` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The reverse."""
        raise NotImplementedError


def built_in_of(compression: Any) -> int | None:
    """``Compressor.built_in``; a class of the program's own need not be a Compressor."""
    return getattr(compression, "built_in", None)


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    built_in: int | None = hvd.compression.Compression.none

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _Narrower(Compressor):
    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


def _narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, Any]:
    if not tensor.dtype.is_floating_point or tensor.element_size() <= 2:
        return tensor, tensor.dtype
    return tensor.to(dtype), tensor.dtype


class FP16Compressor(_Narrower):
    """Sends wider floating-point numbers as 16 bits of IEEE 754."""

    built_in: int | None = hvd.compression.Compression.fp16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return _narrowed(tensor, torch.float16)


class BF16Compressor(_Narrower):
    """Sends wider floating-point numbers as bfloat16: the range of float32, fewer digits."""

    built_in: int | None = hvd.compression.Compression.bf16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return _narrowed(tensor, torch.bfloat16)


class Compression:
    """For the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
