"""The types in which gradients travel."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

import hvd.compression
from hvd.compression import Narrower, NoneCompressor


class _Narrower(Narrower):
    @staticmethod
    def is_wider(tensor: mx.nd.NDArray) -> bool:
        dtype = np.dtype(tensor.dtype)
        return dtype.kind == "f" and dtype.itemsize > 2

    @staticmethod
    def cast(tensor: mx.nd.NDArray, dtype: Any) -> mx.nd.NDArray:
        return tensor.astype(dtype)


class FP16Compressor(_Narrower):
    """Sends wider floating-point numbers as 16 bits of IEEE 754."""

    built_in: int | None = hvd.compression.Compression.fp16
    narrow = np.float16


class Compression:
    """For the argument ``compression``. MXNet has no arrays of bfloat16, so bf16 is a number."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = hvd.compression.Compression.bf16
