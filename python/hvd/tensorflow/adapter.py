"""TensorFlow's tensors as hvd reads and makes them, outside of graphs.

Tensors on CPUs are read without a copy. Results as large as the given tensor are in memory of
TensorFlow; those whose size only the ranks together know are copied once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from hvd import _core, _work
from hvd._collectives import Adapter, Collectives
from hvd._work import TYPES, Handle
from hvd.arrays import array_of
from hvd.compression import TakesCompressors
from hvd.errors import InvalidArgumentError, UnsupportedTypeError, is_found_together

# TensorFlow 2.13 makes no empty tensors of these types.
_ALLOCATED_AS = {tf.int8: tf.uint8, tf.int16: tf.float16, tf.uint16: tf.float16}


def _memory_of(tensor: tf.Tensor) -> np.ndarray[Any, Any]:
    """Shows the elements, without a copy."""
    # NumPy gets a number of its own of a tensor without dimensions.
    return np.asarray(tensor if tensor.shape.rank else tf.reshape(tensor, [1]))


class _Tensors(TakesCompressors, Adapter[tf.Tensor]):
    names_by_kind = True

    def read(self, given: Any) -> tf.Tensor:
        tensor = tf.convert_to_tensor(given)
        if not hasattr(tensor, "numpy"):
            raise TypeError(
                "a tensor with elements is needed, not one that TensorFlow traces: the calls of "
                "hvd without _async in their names can be in a tf.function"
            )
        if tensor.dtype.name not in TYPES:
            raise UnsupportedTypeError(f"hvd cannot send elements of type {tensor.dtype.name}")
        if "CPU" not in tensor.device:
            with tf.device("CPU"):
                tensor = tf.identity(tensor)
        return tensor

    def describe(self, tensor: tf.Tensor) -> _work.Tensor:
        shape: Any = tensor.shape
        number = TYPES[tensor.dtype.name]
        return (_memory_of(tensor).ctypes.data, tuple(shape), number, _work.HOST)

    def empty_like(self, tensor: tf.Tensor) -> tf.Tensor:
        dtype = _ALLOCATED_AS.get(tensor.dtype, tensor.dtype)
        with tf.device("CPU"):
            made = tf.raw_ops.Empty(shape=tensor.shape, dtype=dtype)
            return made if dtype == tensor.dtype else tf.bitcast(made, tensor.dtype)

    def result(self, work: _core.Work, result: _work.Tensor, like: tf.Tensor) -> tf.Tensor:
        address, shape, _, _ = result
        dtype = np.dtype(like.dtype.as_numpy_dtype)
        return tf.constant(array_of(work, address, shape, dtype), like.dtype)

    def rows_of(self, splits: Any) -> list[int]:
        return _work.whole_numbers(np.asarray(splits).ravel().tolist())

    def splits(self, rows: list[int], given: Any, like: tf.Tensor) -> tf.Tensor:
        return tf.constant(rows, tf.int32)


@functools.cache
def _also_of_tensorflow(kind: Any, theirs: Any) -> Any:
    def init(self: Any, text: str) -> None:
        theirs.__init__(self, None, None, text)
        self.args = (text,)

    def reduce(self: Any) -> Any:
        return as_error_of_tensorflow, (kind(str(self)),), {"code": self.code}

    members = {"__init__": init, "__reduce__": reduce, "__module__": kind.__module__}
    return type(kind.__name__, (kind, theirs), members)


def as_error_of_tensorflow(error: InvalidArgumentError) -> InvalidArgumentError:
    """Makes an error of hvd one that is also TensorFlow's, as those of Horovod are."""
    if isinstance(error, tf.errors.OpError):
        return error
    theirs = (
        tf.errors.FailedPreconditionError
        if is_found_together(str(error))
        else tf.errors.InvalidArgumentError
    )
    kind: Any = type(error)
    made: InvalidArgumentError = _also_of_tensorflow(kind, theirs)(str(error))
    made.code = error.code
    return made


@contextlib.contextmanager
def _raising_errors_of_tensorflow() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        raise as_error_of_tensorflow(error) from None


class _Handle(Handle[Any]):
    def wait(self) -> Any:
        with _raising_errors_of_tensorflow():
            return super().wait()


class _Collectives(Collectives[tf.Tensor]):
    """Their errors are also those of TensorFlow."""

    def start(self, *arguments: Any, **options: Any) -> Handle[Any]:
        with _raising_errors_of_tensorflow():
            started = super().start(*arguments, **options)
        return _Handle(started._work, started._finish)


collectives = _Collectives(_Tensors())
