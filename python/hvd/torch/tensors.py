"""PyTorch's tensors as hvd sees them: address, shape, type and device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from hvd import _core, _work
from hvd.errors import UnsupportedTypeError

TYPES = {
    getattr(torch, "bool" if name == "bool" else name): number
    for name, number in _work.TYPES.items()
    if hasattr(torch, name)
}


class _Memory:
    """Memory of hvd on a GPU that a tensor refers to."""

    def __init__(self, owner: object, result: _work.Tensor, typestr: str) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "shape": result[1],
            "typestr": typestr,
            "data": (result[0], False),
            "version": 2,
        }


class _HostMemory:
    """Memory of hvd on the host."""

    def __init__(self, owner: object, result: _work.Tensor, typestr: str) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "shape": result[1],
            "typestr": typestr,
            "data": (result[0], False),
            "version": 3,
        }


# Integers as wide as the elements, of which every version of torch knows tensors.
_INTEGERS = {1: ("|i1", torch.int8), 2: ("<i2", torch.int16), 4: ("<i4", torch.int32)}
_INTEGERS[8] = ("<i8", torch.int64)


def tensor_tuple(tensor: torch.Tensor) -> _work.Tensor:
    """Of a contiguous tensor. Raises UnsupportedTypeError or ValueError of what hvd cannot send."""
    number = TYPES.get(tensor.dtype)
    if number is None:
        raise UnsupportedTypeError(f"hvd cannot send elements of type {tensor.dtype}")
    device = tensor.device
    if device.type == "cpu":
        return (tensor.data_ptr(), tensor.shape, number, _work.HOST)
    if device.type == "cuda":
        return (tensor.data_ptr(), tensor.shape, number, _work.cuda(device.index))
    raise ValueError(f"hvd cannot send a tensor on {device}")


def owner_of(tensor: torch.Tensor) -> object:
    """An object that keeps the memory of a contiguous tensor where it is.

    From now on torch refuses to resize a tensor of the host.
    """
    detached = tensor.detach()
    if tensor.device.type != "cpu":
        return detached
    return detached.view(_INTEGERS[tensor.element_size()][1]).numpy()


def writing(tensors: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager[Any]:
    """Within it the tensors can be changed, also those made in ``torch.inference_mode()``."""
    inference = any(tensor.is_inference() for tensor in tensors)
    return torch.inference_mode() if inference else torch.no_grad()


def stream_of(tensor: torch.Tensor) -> int:
    """The current stream of its GPU; -1: it is on the host."""
    if tensor.device.type != "cuda":
        return -1
    return torch.cuda.current_stream(tensor.device).cuda_stream


def result_tensor(
    owner: _core.Work | _core.Reducer | _core.Memory, result: _work.Tensor, like: torch.Tensor
) -> torch.Tensor:
    """A tensor in the memory of a result, of the type and on the device of ``like``."""
    if 0 in result[1]:
        return torch.empty(result[1], dtype=like.dtype, device=like.device)
    typestr, integer = _INTEGERS[like.element_size()]
    if like.device.type == "cuda":
        memory = torch.as_tensor(_Memory(owner, result, typestr), device=like.device)
    else:
        memory = torch.from_numpy(np.asarray(_HostMemory(owner, result, typestr)))
    return memory if like.dtype == integer else memory.view(like.dtype)


def empty(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of zeros on the host, in memory that the ranks of a host share.

    As ``hvd.empty()``, with the arguments of ``torch.empty()``: ``empty(2, 3)``, ``empty((2, 3))``.
    Without ``dtype`` it has torch's default type. Raises UnsupportedTypeError of a type that hvd
    cannot send, RuntimeError of a shape that torch does not know, and MemoryError.
    """
    like = torch.empty(0, dtype=dtype, device="cpu")
    if like.dtype not in TYPES:
        raise UnsupportedTypeError(f"hvd cannot send elements of type {like.dtype}")
    shape = torch.empty(*size, dtype=like.dtype, device="meta").shape
    memory = _core.Memory(shape.numel() * like.element_size())
    return result_tensor(memory, (memory.address, tuple(shape), 0, 0), like)
