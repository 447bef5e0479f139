"""The types in which gradients travel."""

from __future__ import annotations

import tensorflow as tf

import hvd.compression
from hvd.compression import Narrower, NoneCompressor


class _Narrower(Narrower):
    @staticmethod
    def is_wider(tensor: tf.Tensor) -> bool:
        return bool(tensor.dtype.is_floating) and tensor.dtype.size > 2

    @staticmethod
    def cast(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.cast(tensor, dtype)


class FP16Compressor(_Narrower):
    """Sends wider floating-point numbers as 16 bits of IEEE 754."""

    built_in: int | None = hvd.compression.Compression.fp16
    narrow = tf.float16


class BF16Compressor(_Narrower):
    """Sends wider floating-point numbers as bfloat16: the range of float32, fewer digits."""

    built_in: int | None = hvd.compression.Compression.bf16
    narrow = tf.bfloat16


class Compression:
    """For the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
