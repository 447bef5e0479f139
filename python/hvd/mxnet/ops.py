"""Collectives on MXNet's NDArrays.

MXNet's engine computes arrays later than a program asks for them, so each call waits until its
arrays are computed, and nothing reads those any more that it changes. The arrays of an ``_async``
call must not be used until it is done.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import mxnet as mx
import numpy as np

from hvd._collectives import Collectives
from hvd.arrays import _Arrays
from hvd.compression import TakesCompressors

_COPIED = ("bool", "int8")  # types that MXNet takes from NumPy only by a copy


def _memory_of(array: mx.nd.NDArray) -> np.ndarray[Any, Any]:
    """Shows the memory of an array, without a copy, and keeps the array."""
    if array.context.device_type != "cpu":
        raise ValueError(f"hvd.mxnet takes arrays on CPUs, and this one is on {array.context}")
    address = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    dtype = np.dtype(array.dtype)
    if not address.value:
        return np.empty(array.shape, dtype)
    raw: Any = (ctypes.c_char * (array.size * dtype.itemsize)).from_address(address.value)
    raw.owner = array
    return np.frombuffer(raw, dtype).reshape(array.shape)


class _NdArrays(TakesCompressors, _Arrays):
    """NDArrays, which hvd reads and changes where they lie."""

    def read(self, given: Any) -> np.ndarray[Any, Any]:
        if not isinstance(given, mx.nd.NDArray):
            raise TypeError(f"an NDArray is needed, not {type(given).__name__}")
        if given.stype != "default":
            raise ValueError(f"a dense NDArray is needed, not one of type {given.stype}")
        given.wait_to_read()
        return _memory_of(given)

    def change(self, given: Any) -> np.ndarray[Any, Any]:
        array = self.read(given)
        mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(given.handle))
        return array

    def rows_of(self, splits: Any) -> list[int]:
        if isinstance(splits, mx.nd.NDArray):
            if np.dtype(splits.dtype).kind not in "iu":
                raise ValueError(f"splits are whole numbers, not of type {np.dtype(splits.dtype)}")
            splits = splits.asnumpy()
        return super().rows_of(splits)

    def give(self, result: np.ndarray[Any, Any]) -> mx.nd.NDArray:
        array = np.asarray(result)
        if array.size == 0 or array.dtype.name in _COPIED:
            return mx.nd.array(array, dtype=array.dtype)
        return mx.nd.from_numpy(array)


collectives: Collectives[Any] = Collectives(_NdArrays())

Call = TypeVar("Call", bound=Callable[..., Any])


def _with_priority(call: Call) -> Call:
    """Takes Horovod's ``priority``, as a keyword: calls start in the order in which they come."""

    @functools.wraps(call)
    def call_without(*arguments: Any, priority: int = 0, **options: Any) -> Any:
        del priority
        return call(*arguments, **options)

    return cast(Call, call_without)


allgather = _with_priority(collectives.allgather)
allgather_async = _with_priority(collectives.allgather_async)
allreduce = _with_priority(collectives.allreduce)
allreduce_ = _with_priority(collectives.allreduce_)
allreduce_async = _with_priority(collectives.allreduce_async)
allreduce_async_ = _with_priority(collectives.allreduce_async_)
alltoall = _with_priority(collectives.alltoall)
alltoall_async = _with_priority(collectives.alltoall_async)
broadcast = _with_priority(collectives.broadcast)
broadcast_ = _with_priority(collectives.broadcast_)
broadcast_async = _with_priority(collectives.broadcast_async)
broadcast_async_ = _with_priority(collectives.broadcast_async_)
grouped_allgather = _with_priority(collectives.grouped_allgather)
grouped_allgather_async = _with_priority(collectives.grouped_allgather_async)
grouped_allreduce = _with_priority(collectives.grouped_allreduce)
grouped_allreduce_ = _with_priority(collectives.grouped_allreduce_)
grouped_allreduce_async = _with_priority(collectives.grouped_allreduce_async)
grouped_allreduce_async_ = _with_priority(collectives.grouped_allreduce_async_)
grouped_reducescatter = _with_priority(collectives.grouped_reducescatter)
grouped_reducescatter_async = _with_priority(collectives.grouped_reducescatter_async)
recv = collectives.recv
recv_async = collectives.recv_async
reducescatter = _with_priority(collectives.reducescatter)
reducescatter_async = _with_priority(collectives.reducescatter_async)
send = collectives.send
send_async = collectives.send_async
