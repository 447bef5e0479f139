"""The types in which gradients travel."""

from __future__ import annotations

import torch

import hvd.compression
from hvd.compression import Compressor as Compressor
from hvd.compression import Narrower, NoneCompressor
from hvd.compression import built_in_of as built_in_of


class _Narrower(Narrower):
    @staticmethod
    def is_wider(tensor: torch.Tensor) -> bool:
        return tensor.dtype.is_floating_point and tensor.element_size() > 2

    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype)


class FP16Compressor(_Narrower):
    """Sends wider floating-point numbers as 16 bits of IEEE 754."""

    built_in: int | None = hvd.compression.Compression.fp16
    narrow = torch.float16


class BF16Compressor(_Narrower):
    """Sends wider floating-point numbers as bfloat16: the range of float32, fewer digits."""

    built_in: int | None = hvd.compression.Compression.bf16
    narrow = torch.bfloat16


class Compression:
    """For the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
