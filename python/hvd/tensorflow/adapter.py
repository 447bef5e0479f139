"""TensorFlow's tensors as hvd reads and makes them, outside of graphs.

What hvd reads on CPUs is not copied. Results as large as what was given are in memory of
TensorFlow; those whose size only the ranks together know are copied once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from hvd import _core, _work
from hvd._collectives import Adapter, Collectives
from hvd._work import TYPES
from hvd.arrays import array_of
from hvd.errors import UnsupportedTypeError


def _memory_of(tensor: tf.Tensor) -> np.ndarray[Any, Any]:
    """Shows the elements, without a copy."""
    # NumPy gets a number of its own of a tensor without dimensions.
    return np.asarray(tensor if tensor.shape.rank else tf.reshape(tensor, [1]))


class _Tensors(Adapter[tf.Tensor]):
    names_by_kind = True

    def read(self, given: Any) -> tf.Tensor:
        tensor = tf.convert_to_tensor(given)
        if not hasattr(tensor, "numpy"):
            raise TypeError(
                "a tensor with elements is needed, not one that TensorFlow traces: the calls of "
                "hvd without _async in their names can be in a tf.function"
            )
        if "CPU" not in tensor.device:
            with tf.device("CPU"):
                tensor = tf.identity(tensor)
        return tensor

    def describe(self, tensor: tf.Tensor) -> _work.Tensor:
        number = TYPES.get(tensor.dtype.name)
        if number is None:
            raise UnsupportedTypeError(f"hvd cannot send elements of type {tensor.dtype.name}")
        shape: Any = tensor.shape
        return (_memory_of(tensor).ctypes.data, tuple(shape), number, _work.HOST)

    def empty_like(self, tensor: tf.Tensor) -> tf.Tensor:
        return self._empty(tensor.shape, tensor.dtype)

    @staticmethod
    def _empty(shape: Any, dtype: tf.DType) -> tf.Tensor:
        with tf.device("CPU"):
            return tf.raw_ops.Empty(shape=shape, dtype=dtype)

    def result(self, work: _core.Work, result: _work.Tensor, like: tf.Tensor) -> tf.Tensor:
        address, shape, _, _ = result
        dtype = np.dtype(like.dtype.as_numpy_dtype)
        return tf.constant(array_of(work, address, shape, dtype), like.dtype)

    def rows_of(self, splits: Any) -> list[int]:
        return _work.whole_numbers(np.asarray(splits).ravel().tolist())

    def splits(self, rows: list[int], given: Any, like: tf.Tensor) -> tf.Tensor:
        return tf.constant(rows, tf.int32)


collectives: Collectives[tf.Tensor] = Collectives(_Tensors())
