"""Collectives on PyTorch's tensors; those of allreduce are in allreduce_ops.py.

The calls whose names end in an underscore work in place and give the same tensor. Each has an
``_async`` form, which gives a handle for ``synchronize()`` and ``poll()``; its tensors must not be
changed until the work is done. Ranks call the same collectives with the same names. Of those
without a name, the order of the calls in the process set counts. Tensors on a GPU are taken in the
order of its current stream.

Of all calls: InvalidArgumentError (a ValueError) is an argument of this rank that is wrong,
DisagreementError what the ranks say differently, HorovodInternalError the loss of a member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hvd._collectives import reduce_arguments
from hvd._work import Average, Handle, Sum
from hvd.basics import ProcessSet, global_process_set

from .adapter import collectives, collectives_of_programs
from .allreduce_ops import allreduce, grouped_allreduce
from .compression import Compression, Compressor

# --- allgather ---------------------------------------------------------------------------------


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):  # type: ignore[no-untyped-def]
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() > 0 else 0]
        return collectives.allgather(tensor, name, process_set)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return *_own_rows(ctx, [gradient]), None, None


def _own_rows(ctx: Any, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The part of this rank in the average of all ranks' gradients."""
    rank = ctx.process_set.rank()
    counts = collectives.allgather(torch.tensor([ctx.rows]), None, ctx.process_set)
    reduced = grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
    return [
        gradient.narrow(0, int(counts[:rank, index].sum()), rows)
        for index, (gradient, rows) in enumerate(zip(reduced, ctx.rows))
    ]


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):  # type: ignore[no-untyped-def]
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() > 0 else 0 for tensor in tensors]
        return tuple(collectives.grouped_allgather(tensors, name, process_set))

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        return (None, None, *_own_rows(ctx, gradients))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Puts the tensors of all ranks together along their first dimension, in the ranks' order.

    The first dimension may differ from rank to rank; the others may not. The gradient of this
    rank's rows is the average of what all ranks have there.
    """
    return _Allgather.apply(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """``allgather()`` of several tensors together."""
    return list(_GroupedAllgather.apply(name, process_set, *tensors))


# --- broadcast ---------------------------------------------------------------------------------


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):  # type: ignore[no-untyped-def]
        ctx.arguments = (root_rank, process_set)
        return collectives.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        from hvd import rank

        root_rank, process_set = ctx.arguments
        reduced = allreduce(gradient, op=Average, process_set=process_set)
        if rank() != root_rank:
            reduced = torch.zeros_like(reduced)
        return reduced, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Gives every rank the root's tensor, as a new tensor.

    Args:
        root_rank: a rank of the world, also with a process set.

    The root's gradient is the average of those of all ranks; the others have none.
    """
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# --- alltoall ----------------------------------------------------------------------------------


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Starts ``alltoall()``. Not differentiable.

    ``synchronize()`` gives two tensors, as ``alltoall()`` does with ``splits``.
    """
    started = collectives_of_programs.start_alltoall(
        tensor, splits, name, process_set, with_rows=True
    )
    return collectives_of_programs.going_on([tensor], started)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):  # type: ignore[no-untyped-def]
        output, received = collectives.start_alltoall(
            tensor, splits, name, process_set, with_rows=True
        ).wait()
        ctx.arguments = (received, process_set)
        ctx.unsent = 0
        if splits is not None:
            ctx.unsent = tensor.shape[0] - int(torch.as_tensor(splits).sum())
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, gradient, _):  # type: ignore[no-untyped-def]
        received, process_set = ctx.arguments
        own, _ = _Alltoall.apply(gradient, received, None, process_set)
        if ctx.unsent > 0:
            own = torch.cat([own, own.new_zeros((ctx.unsent, *own.shape[1:]))])
        return own, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank some rows of this rank's tensor.

    Args:
        tensor: its rows go to the ranks in their order.
        splits: how many rows go to each rank; None: equally many.

    Returns:
        What this rank has got, in the order of the senders; with ``splits`` also how many rows came
        from each, as int32.
    """
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


# --- reducescatter -----------------------------------------------------------------------------


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Starts ``reducescatter()``. Not differentiable."""
    return collectives_of_programs.reducescatter_async(
        tensor, op, name, prescale_factor, postscale_factor, process_set
    )


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[torch.Tensor]]:
    """Starts ``grouped_reducescatter()``. Not differentiable."""
    return collectives_of_programs.grouped_reducescatter_async(
        tensors, op, name, prescale_factor, postscale_factor, process_set
    )


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, *tensors):  # type: ignore[no-untyped-def]
        ctx.call = call
        return tuple(collectives.start_reducescatter(tensors, call, grouped=True).wait())

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        call = ctx.call
        factor = call.prescale * call.postscale
        if call.op == Sum:
            factor *= call.process_set.size()
        scaled = [gradient * factor for gradient in gradients]
        return None, *grouped_allgather(scaled, None, call.process_set)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces as ``allreduce()`` does, and gives each rank its share of the rows.

    If the rows cannot be shared out evenly, the first ranks have one more. Ranks that have called
    ``join()`` count here, too: the rows that would be theirs are lost.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """``reducescatter()`` of several tensors together."""
    call = reduce_arguments(None, name, op, prescale_factor, postscale_factor, process_set)
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _Reducescatter.apply(call, *(small for small, _ in pairs))
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]


# --- calls that cannot be differentiated ---------------------------------------------------------

allgather_async = collectives_of_programs.allgather_async
allreduce_ = collectives.allreduce_
allreduce_async = collectives_of_programs.allreduce_async
allreduce_async_ = collectives_of_programs.allreduce_async_
broadcast_ = collectives.broadcast_
broadcast_async = collectives_of_programs.broadcast_async
broadcast_async_ = collectives_of_programs.broadcast_async_
grouped_allgather_async = collectives_of_programs.grouped_allgather_async
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives_of_programs.grouped_allreduce_async
grouped_allreduce_async_ = collectives_of_programs.grouped_allreduce_async_
recv = collectives.recv
recv_async = collectives_of_programs.recv_async
send = collectives.send
send_async = collectives_of_programs.send_async
