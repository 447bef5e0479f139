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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _core, _work
from ._work import TYPES, Average, Handle, Kind, choose_op, start
from .basics import ProcessSet, global_process_set
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


def _type_of(array: NDArray[Any]) -> int:
    number = TYPES.get(array.dtype.name)
    if number is None or not array.dtype.isnative:
        raise UnsupportedTypeError(f"hvd cannot send elements of type {array.dtype}")
    return number


def _tensor(array: NDArray[Any]) -> _work.Tensor:
    return (array.ctypes.data, array.shape, _type_of(array), _work.HOST)


def _input(given: Any) -> NDArray[Any]:
    """Its elements one after the other; a copy only where they are not."""
    if not isinstance(given, np.ndarray) and hasattr(given, "__dlpack__"):
        given = np.from_dlpack(given)
    array = np.asarray(given)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _in_place(given: Any) -> _work.Tensor:
    interface = getattr(given, "__cuda_array_interface__", None)
    if interface is not None:
        if interface.get("strides") is not None:
            raise ValueError("an array on a GPU must be contiguous to be changed in place")
        number = TYPES.get(np.dtype(interface["typestr"]).name)
        if number is None:
            raise UnsupportedTypeError(f"hvd cannot send elements of type {interface['typestr']}")
        address, read_only = interface["data"]
        if read_only:
            raise ValueError("the array is read-only")
        device = _work.cuda(_core.cuda_device())
        return (address, tuple(interface["shape"]), number, device)
    if not isinstance(given, np.ndarray):
        raise TypeError(f"an array is needed to be changed in place, not {type(given).__name__}")
    if not given.flags.c_contiguous or not given.flags.writeable:
        raise ValueError("an array must be contiguous and writeable to be changed in place")
    return _tensor(given)


def _stream_of(given: Any) -> int:
    """The stream in whose order an array on a GPU is; -1: it is on the host."""
    interface = getattr(given, "__cuda_array_interface__", None)
    if interface is None:
        return -1
    stream = interface.get("stream")
    # 1 is the legacy stream in that protocol, which is 0 for CUDA.
    return 0 if stream in (None, 1) else stream


def _array(
    owner: _core.Work | _core.Memory, address: int, shape: tuple[int, ...], like: np.dtype[Any]
) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, like)
    # Types that NumPy does not know by itself have no letter of their own.
    typestr = like.str if like.kind in "biuf" else f"|V{like.itemsize}"
    array = np.asarray(_Memory(owner, address, shape, typestr))
    return array if array.dtype == like else array.view(like)


def _view(work: _core.Work, result: _work.Tensor, like: np.dtype[Any]) -> NDArray[Any]:
    address, shape, _, _ = result
    return _array(work, address, shape, like)


def _first_result(like: np.dtype[Any]) -> Callable[[_core.Work], NDArray[Any]]:
    return lambda work: _view(work, work.results()[0], like)


def _all_results(likes: list[np.dtype[Any]]) -> Callable[[_core.Work], list[NDArray[Any]]]:
    return lambda work: [_view(work, result, like) for result, like in zip(work.results(), likes)]


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
    _type_of(np.empty(0, like))
    size = math.prod(extents) * like.itemsize
    if size > sys.maxsize:
        raise MemoryError(f"no machine has memory for an array of the shape {extents}")
    memory = _core.Memory(size)
    return _array(memory, memory.address, extents, like)


# --- allreduce ---------------------------------------------------------------------------------


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[NDArray[Any]]:
    """Starts ``allreduce()``."""
    array = _input(tensor)
    output = np.empty_like(array)
    work = start(
        Kind.ALLREDUCE,
        _tensor(array),
        _tensor(output),
        name=name,
        op=choose_op(op, average),
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=(array, output),
    )
    return Handle(work, lambda done: output)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> NDArray[Any]:
    """Reduces an array element by element over all ranks, and gives every rank the result.

    Args:
        tensor: of the same shape and type on all ranks.
        average: the older form of ``op``: True for Average, False for Sum.
        name: the same on all ranks; None: numbered by the order of the calls.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: elements are multiplied by them before and after.
        process_set: the ranks that take part.
        compression: Compression.none, .fp16 or .bf16: the type in which elements travel.

    Returns:
        A new array of the same shape and type.

    Raises:
        InvalidArgumentError: an argument of this rank is wrong.
        DisagreementError: those of the ranks do not fit together.
        HorovodInternalError: a member is gone.
    """
    return allreduce_async(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set, compression
    ).wait()


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[Any]:
    """Starts ``allreduce_()``."""
    work = start(
        Kind.ALLREDUCE,
        _in_place(tensor),
        name=name,
        op=choose_op(op, average),
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=tensor,
        stream=_stream_of(tensor),
    )
    return Handle(work, lambda done: tensor)


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Any:
    """``allreduce()`` in place. Gives the same array."""
    return allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set, compression
    ).wait()


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[list[NDArray[Any]]]:
    """Starts ``grouped_allreduce()``."""
    arrays = [_input(tensor) for tensor in tensors]
    outputs = [np.empty_like(array) for array in arrays]
    work = start(
        Kind.ALLREDUCE,
        [_tensor(array) for array in arrays],
        [_tensor(output) for output in outputs],
        name=name,
        op=choose_op(op, average),
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=(arrays, outputs),
    )
    return Handle(work, lambda done: outputs)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> list[NDArray[Any]]:
    """``allreduce()`` of several arrays, which are reduced together, when all are there."""
    return grouped_allreduce_async(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set, compression
    ).wait()


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[list[Any]]:
    """Starts ``grouped_allreduce_()``."""
    kept = list(tensors)
    work = start(
        Kind.ALLREDUCE,
        [_in_place(tensor) for tensor in kept],
        name=name,
        op=choose_op(op, average),
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=kept,
        stream=max((_stream_of(tensor) for tensor in kept), default=-1),
    )
    return Handle(work, lambda done: kept)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> list[Any]:
    """``grouped_allreduce()`` in place."""
    return grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set, compression
    ).wait()


# --- allgather ---------------------------------------------------------------------------------


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[NDArray[Any]]:
    """Starts ``allgather()``."""
    array = _input(tensor)
    work = start(Kind.ALLGATHER, _tensor(array), name=name, process_set=process_set, keep=array)
    return Handle(work, _first_result(array.dtype))


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> NDArray[Any]:
    """Puts the arrays of all ranks together along their first dimension, in the ranks' order.

    The first dimension may differ from rank to rank; the others may not.
    """
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[NDArray[Any]]]:
    """Starts ``grouped_allgather()``."""
    arrays = [_input(tensor) for tensor in tensors]
    work = start(
        Kind.ALLGATHER,
        [_tensor(array) for array in arrays],
        name=name,
        process_set=process_set,
        keep=arrays,
    )
    return Handle(work, _all_results([array.dtype for array in arrays]))


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[NDArray[Any]]:
    """``allgather()`` of several arrays together."""
    return grouped_allgather_async(tensors, name, process_set).wait()


# --- broadcast ---------------------------------------------------------------------------------


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[NDArray[Any]]:
    """Starts ``broadcast()``."""
    array = _input(tensor)
    output = np.empty_like(array)
    work = start(
        Kind.BROADCAST,
        _tensor(array),
        _tensor(output),
        name=name,
        root=root_rank,
        process_set=process_set,
        keep=(array, output),
    )
    return Handle(work, lambda done: output)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> NDArray[Any]:
    """Gives every rank the root's array, as a new array.

    Args:
        tensor: of the same shape and type on all ranks.
        root_rank: a rank of the world, also with a process set.
    """
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts ``broadcast_()``."""
    work = start(
        Kind.BROADCAST,
        _in_place(tensor),
        name=name,
        root=root_rank,
        process_set=process_set,
        keep=tensor,
        stream=_stream_of(tensor),
    )
    return Handle(work, lambda done: tensor)


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """``broadcast()`` in place."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


# --- send and recv -----------------------------------------------------------------------------


def send_async(tensor: Any, dst: int, name: str | None = None) -> Handle[None]:
    """Starts ``send()``."""
    array = _input(tensor)
    work = start(
        Kind.SEND,
        _tensor(array),
        name=name,
        root=dst,
        process_set=global_process_set,
        keep=array,
    )
    return Handle(work, lambda done: None)


def send(tensor: Any, dst: int, name: str | None = None) -> None:
    """Sends an array to another rank, which calls ``recv()``; the other ranks go on.

    Args:
        tensor: of the same shape and type as the receiver's.
        dst: a rank of the world.
        name: the same at both ends; None: the order of the two ranks' calls counts.
    """
    send_async(tensor, dst, name).wait()


def recv_async(tensor: Any, src: int, name: str | None = None) -> Handle[Any]:
    """Starts ``recv()``."""
    work = start(
        Kind.RECV,
        _in_place(tensor),
        name=name,
        root=src,
        process_set=global_process_set,
        keep=tensor,
    )
    return Handle(work, lambda done: tensor)


def recv(tensor: Any, src: int, name: str | None = None) -> Any:
    """Fills ``tensor`` with what rank ``src`` sends, and gives it."""
    return recv_async(tensor, src, name).wait()


# --- alltoall ----------------------------------------------------------------------------------


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts ``alltoall()``."""
    array = _input(tensor)
    work = start(
        Kind.ALLTOALL,
        _tensor(array),
        name=name,
        splits=None if splits is None else _work.whole_numbers(np.asarray(splits).ravel().tolist()),
        process_set=process_set,
        keep=array,
    )

    def finish(done: _core.Work) -> Any:
        output = _view(done, done.results()[0], array.dtype)
        if splits is None:
            return output
        return output, np.asarray(done.received_splits(), dtype=np.int32)

    return Handle(work, finish)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank some rows of this rank's array.

    Args:
        tensor: its rows go to the ranks in their order.
        splits: how many rows go to each rank; None: equally many.

    Returns:
        What this rank has got, in the order of the senders; with ``splits`` also how many rows came
        from each, as int32.

    Raises:
        InvalidArgumentError: the splits do not fit the array or the ranks.
    """
    return alltoall_async(tensor, splits, name, process_set).wait()


# --- reducescatter -----------------------------------------------------------------------------


def reducescatter_async(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[NDArray[Any]]:
    """Starts ``reducescatter()``."""
    array = _input(tensor)
    work = start(
        Kind.REDUCESCATTER,
        _tensor(array),
        name=name,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=array,
    )
    return Handle(work, _first_result(array.dtype))


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> NDArray[Any]:
    """Reduces as ``allreduce()`` does, and gives each rank its share of the rows.

    If the rows cannot be shared out evenly, the first ranks have one more. Ranks that have called
    ``join()`` count here, too: the rows that would be theirs are lost.
    """
    return reducescatter_async(
        tensor, op, name, prescale_factor, postscale_factor, process_set, compression
    ).wait()


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Handle[list[NDArray[Any]]]:
    """Starts ``grouped_reducescatter()``."""
    arrays = [_input(tensor) for tensor in tensors]
    work = start(
        Kind.REDUCESCATTER,
        [_tensor(array) for array in arrays],
        name=name,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        compression=compression,
        process_set=process_set,
        keep=arrays,
    )
    return Handle(work, _all_results([array.dtype for array in arrays]))


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> list[NDArray[Any]]:
    """``reducescatter()`` of several arrays together."""
    return grouped_reducescatter_async(
        tensors, op, name, prescale_factor, postscale_factor, process_set, compression
    ).wait()
