"""The calls that only start a collective, as programs get them.

A program goes on while the collective reads and writes the memory of its tensors. Work keeps them
alive, but torch frees the memory that a tensor grows out of. So it refuses to resize tensors of the
host that were given to one of these calls, also afterwards, since it knows no way back. The calls
that wait do not need that.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from . import allreduce_ops, ops
from .tensors import TYPES, owner_of

_Parameters = ParamSpec("_Parameters")
_Started = TypeVar("_Started")


def _refuse_to_resize(tensors: Any) -> None:
    for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
        if tensor.dtype not in TYPES or tensor.layout != torch.strided:
            continue
        if tensor.is_contiguous() and not tensor.is_neg():  # else a copy of it is in flight
            with contextlib.suppress(RuntimeError, TypeError):  # memory of other kinds
                owner_of(tensor)


def _of_programs(start: Callable[_Parameters, _Started]) -> Callable[_Parameters, _Started]:
    @functools.wraps(start)
    def call(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Started:
        started = start(*arguments, **named)
        _refuse_to_resize(arguments[0] if arguments else named.get("tensor", named.get("tensors")))
        return started

    return call


allgather_async = _of_programs(ops.allgather_async)
allreduce_async = _of_programs(allreduce_ops.allreduce_async)
allreduce_async_ = _of_programs(allreduce_ops.allreduce_async_)
alltoall_async = _of_programs(ops.alltoall_async)
broadcast_async = _of_programs(ops.broadcast_async)
broadcast_async_ = _of_programs(ops.broadcast_async_)
grouped_allgather_async = _of_programs(ops.grouped_allgather_async)
grouped_allreduce_async = _of_programs(allreduce_ops.grouped_allreduce_async)
grouped_allreduce_async_ = _of_programs(allreduce_ops.grouped_allreduce_async_)
grouped_reducescatter_async = _of_programs(ops.grouped_reducescatter_async)
recv_async = _of_programs(ops.recv_async)
reducescatter_async = _of_programs(ops.reducescatter_async)
send_async = _of_programs(ops.send_async)
