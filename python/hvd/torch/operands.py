"""Tensors as collectives take and give them, and the start of a collective on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hvd import _core, _work
from hvd._work import Kind, Tensor

from .tensors import stream_of, tensor_tuple, writing


def start(kind: Kind, *tensors: Any, name: str | None, **options: Any) -> _core.Work:
    """Starts a collective. As in Horovod, those of other kinds may have the same name."""
    is_between_two = kind in (Kind.SEND, Kind.RECV)  # which have one name
    if name is not None and not is_between_two:
        name = f"{kind.name.lower()}.{name}"
    return _work.start(kind, *tensors, name=name, **options)


def dense_input(tensor: torch.Tensor) -> torch.Tensor:
    """Gives the tensor as a collective reads it: dense, contiguous, without its history.

    TypeError if it is no tensor, ValueError if it is sparse.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a tensor is needed, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"a dense tensor is needed, not one of layout {tensor.layout}; "
            "sparse_allreduce_async() takes sparse ones"
        )
    # The memory of a tensor that is negated lazily holds the opposite.
    return tensor.detach().resolve_neg().contiguous()


def dense_inputs(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gives each as ``dense_input()`` does."""
    return [dense_input(tensor) for tensor in tensors]


def tensor_tuples(tensors: Sequence[torch.Tensor]) -> list[Tensor]:
    """Describes the tensors to the extension."""
    return [tensor_tuple(tensor) for tensor in tensors]


def stream_of_first(tensors: Sequence[torch.Tensor]) -> int:
    """Gives the stream of the first one's GPU; -1 for a CPU or none at all."""
    return stream_of(tensors[0]) if tensors else -1


class InPlace:
    """Tensors that are changed in place, by way of a copy where their elements are scattered."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        self.dense = dense_inputs(self.tensors)

    def finish(self, work: _core.Work) -> list[torch.Tensor]:
        del work
        with writing(self.tensors):
            for tensor, dense in zip(self.tensors, self.dense):
                if tensor.data_ptr() != dense.data_ptr():
                    tensor.copy_(dense)
        return self.tensors
