"""The types in which gradients travel."""

from __future__ import annotations

from typing import Any

import torch

import hvd.compression


class Compressor:
    """Makes tensors smaller for their way. One of your own has these two functions."""

    # What hvd's runtime does instead, without a copy; None: only compress() and decompress() do.
    built_in: int | None = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what ``decompress()`` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The reverse."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    built_in = hvd.compression.Compression.none

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _Narrower(Compressor):
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point or tensor.element_size() <= 2:
            return tensor, tensor.dtype
        return tensor.to(cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_Narrower):
    """Sends wider floating-point numbers as 16 bits of IEEE 754."""

    built_in = hvd.compression.Compression.fp16
    dtype = torch.float16


class BF16Compressor(_Narrower):
    """Sends wider floating-point numbers as bfloat16: the range of float32, fewer digits."""

    built_in = hvd.compression.Compression.bf16
    dtype = torch.bfloat16


class Compression:
    """For the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
