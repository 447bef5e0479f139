"""Collectives on NumPy arrays, and on whatever shares its memory in a way that NumPy knows.

Arguments may be arrays, numbers, lists, or objects with ``__array_interface__``, a buffer or
``__dlpack__``. The calls whose names end in an underscore work in place; they take arrays only,
and also objects with ``__cuda_array_interface__``, whose memory is on a GPU. Each call has an
``_async`` form, which gives a handle for ``synchronize()`` and ``poll()``; its arrays must not be
changed until the work is done.

Ranks call the same collectives with the same names. Of those without a name, the order of the calls
in the process set counts.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _core, _work
from ._collectives import Adapter, Collectives
from ._work import TYPES
from .errors import UnsupportedTypeError


class _Memory:
    """Memory of hvd that an array refers to."""

    def __init__(
        self,
        owner: _core.Work | _core.Memory,
        address: int,
        shape: tuple[int, ...],
        typestr: str,
    ):
        self._owner = owner
        self.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
        }


def _number_of(dtype: np.dtype[Any]) -> int:
    number = TYPES.get(dtype.name)
    if number is None or not dtype.isnative:
        raise UnsupportedTypeError(f"hvd cannot send elements of type {dtype}")
    return number


def _gpu_memory(given: Any) -> dict[str, Any] | None:
    return getattr(given, "__cuda_array_interface__", None)


def array_of(
    owner: _core.Work | _core.Memory, address: int, shape: tuple[int, ...], like: np.dtype[Any]
) -> NDArray[Any]:
    """Shows memory of hvd, and keeps its owner."""
    if 0 in shape:
        return np.empty(shape, like)
    # Types that NumPy does not know by itself have no letter of their own.
    typestr = like.str if like.kind in "biuf" else f"|V{like.itemsize}"
    array = np.asarray(_Memory(owner, address, shape, typestr))
    return array if array.dtype == like else array.view(like)


class _Arrays(Adapter[Any]):
    """Arrays of NumPy, and, where they are only changed, those on a GPU."""

    def read(self, given: Any) -> NDArray[Any]:
        if not isinstance(given, np.ndarray) and hasattr(given, "__dlpack__"):
            given = np.from_dlpack(given)
        array = np.asarray(given)
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def change(self, given: Any) -> Any:
        memory = _gpu_memory(given)
        if memory is not None:
            if memory.get("strides") is not None:
                raise ValueError("an array on a GPU must be contiguous to be changed in place")
            if memory["data"][1]:
                raise ValueError("the array is read-only")
            return given
        if not isinstance(given, np.ndarray):
            raise TypeError(
                f"an array is needed to be changed in place, not {type(given).__name__}"
            )
        if not given.flags.c_contiguous or not given.flags.writeable:
            raise ValueError("an array must be contiguous and writeable to be changed in place")
        return given

    def describe(self, tensor: Any) -> _work.Tensor:
        memory = _gpu_memory(tensor)
        if memory is None:
            return (tensor.ctypes.data, tensor.shape, _number_of(tensor.dtype), _work.HOST)
        number = _number_of(np.dtype(memory["typestr"]))
        device = _work.cuda(_core.cuda_device())
        return (memory["data"][0], tuple(memory["shape"]), number, device)

    def empty_like(self, tensor: NDArray[Any]) -> NDArray[Any]:
        return np.empty_like(tensor)

    def result(self, work: _core.Work, result: _work.Tensor, like: NDArray[Any]) -> NDArray[Any]:
        address, shape, _, _ = result
        return array_of(work, address, shape, like.dtype)

    def rows_of(self, splits: Any) -> list[int]:
        return _work.whole_numbers(np.asarray(splits).ravel().tolist())

    def splits(self, rows: list[int], given: Any, like: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(rows, dtype=np.int32)

    def stream(self, tensors: Sequence[Any]) -> int:
        return max((self._stream_of(tensor) for tensor in tensors), default=-1)

    @staticmethod
    def _stream_of(tensor: Any) -> int:
        memory = _gpu_memory(tensor)
        if memory is None:
            return -1
        stream = memory.get("stream")
        # 1 is the legacy stream in that protocol, which is 0 for CUDA.
        return 0 if stream in (None, 1) else stream


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """An array of zeros in memory that the ranks of a host share.

    Large allreduces of such arrays, in place, are done where they lie, which saves a quarter to a
    half of the time where each rank has a core. Nothing else depends on it; where the process may
    not map so much it is ordinary memory. May be called before ``init()``, and the array outlives
    ``shutdown()``. A process that is forked writes to the same memory as its parent.

    Raises UnsupportedTypeError of a type that hvd cannot send, ValueError for a negative extent,
    and MemoryError if there is no memory left.
    """
    extents = tuple(operator.index(n) for n in (shape if isinstance(shape, Sequence) else (shape,)))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"an array cannot have the shape {extents}")
    like = np.dtype(dtype)
    _number_of(like)
    size = math.prod(extents) * like.itemsize
    if size > sys.maxsize:
        raise MemoryError(f"no machine has memory for an array of the shape {extents}")
    memory = _core.Memory(size)
    return array_of(memory, memory.address, extents, like)


# Their results are arrays, but where they give what they were given.
collectives: Collectives[NDArray[Any]] = Collectives(_Arrays())

allgather = collectives.allgather
allgather_async = collectives.allgather_async
allreduce = collectives.allreduce
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
alltoall = collectives.alltoall
alltoall_async = collectives.alltoall_async
broadcast = collectives.broadcast
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
grouped_allgather = collectives.grouped_allgather
grouped_allgather_async = collectives.grouped_allgather_async
grouped_allreduce = collectives.grouped_allreduce
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
grouped_reducescatter = collectives.grouped_reducescatter
grouped_reducescatter_async = collectives.grouped_reducescatter_async
recv = collectives.recv
recv_async = collectives.recv_async
reducescatter = collectives.reducescatter
reducescatter_async = collectives.reducescatter_async
send = collectives.send
send_async = collectives.send_async
