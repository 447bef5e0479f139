"""Bringing all ranks to the same model, optimizer state and objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hvd.basics import ProcessSet, global_process_set, rank
from hvd.objects import allgather_object, broadcast_object

from .adapter import collectives

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the root's values of these tensors, in place.

    Args:
        params: ``model.state_dict()`` or ``model.named_parameters()``; the same names on all ranks.
        root_rank: a rank of the world.
    """
    if isinstance(params, Mapping):
        named: list[Any] = sorted(params.items())
    elif isinstance(params, Iterable):
        named = [item if isinstance(item, tuple) else (None, item) for item in params]  # type: ignore[misc]
    else:
        raise ValueError(f"invalid params of type {type(params)}")
    handles = [
        collectives.broadcast_async_(tensor, root_rank, name, process_set)
        for name, tensor in named
        if isinstance(tensor, torch.Tensor)
    ]
    for handle in handles:
        handle.wait()


class _Place:
    """Where a tensor was taken out of an object: its index, type and shape."""

    def __init__(self, index: int, tensor: torch.Tensor) -> None:
        self.index = index
        self.dtype = tensor.dtype
        self.shape = tensor.shape


def _map(value: Any, function: Any) -> Any:
    """The same structure, with ``function`` applied to what is neither a dict, list nor tuple."""
    if isinstance(value, dict):
        return {key: _map(one, function) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_map(one, function) for one in value)
    return function(value)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the root's state of the optimizer: its options, and what it remembers.

    ``model`` is of Horovod's signature; nothing depends on it.

    Raises:
        ValueError: the optimizer is LBFGS, whose state cannot be sent.
    """
    del model
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = rank() == root_rank
    tensors: list[torch.Tensor] = []

    def take_out(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return _Place(len(tensors) - 1, value)

    skeleton = _map(optimizer.state_dict(), take_out) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, process_set=process_set)
    if not is_root:
        places: list[_Place] = []
        _map(skeleton, lambda one: places.append(one) if isinstance(one, _Place) else None)
        tensors = [torch.empty(place.shape, dtype=place.dtype) for place in places]

    sent = [tensor.detach().cpu() if is_root else tensor for tensor in tensors]
    handles = [
        collectives.broadcast_async_(tensor, root_rank, f"optimizer.{index}", process_set)
        for index, tensor in enumerate(sent)
    ]
    for handle in handles:
        handle.wait()
    if not is_root:
        optimizer.load_state_dict(
            _map(skeleton, lambda one: sent[one.index] if isinstance(one, _Place) else one)
        )
