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

from hvd import _core, _work
from hvd._work import Average, Handle, Kind, Sum
from hvd.basics import ProcessSet, global_process_set

from .allreduce_ops import allreduce, grouped_allreduce
from .compression import Compression, Compressor
from .operands import InPlace, dense_input, dense_inputs, start, stream_of_first, tensor_tuples
from .tensors import result_tensor, stream_of, tensor_tuple

# --- allgather ---------------------------------------------------------------------------------


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Starts ``allgather()``. Not differentiable."""
    dense = dense_input(tensor)
    work = start(
        Kind.ALLGATHER,
        tensor_tuple(dense),
        name=name,
        process_set=process_set,
        keep=dense,
        stream=stream_of(dense),
    )
    return Handle(work, lambda done: result_tensor(done, done.results()[0], dense))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts ``grouped_allgather()``. Not differentiable."""
    dense = dense_inputs(tensors)
    work = start(
        Kind.ALLGATHER,
        tensor_tuples(dense),
        name=name,
        process_set=process_set,
        keep=dense,
        stream=stream_of_first(dense),
    )
    return Handle(
        work,
        lambda done: [
            result_tensor(done, result, like) for result, like in zip(done.results(), dense)
        ],
    )


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):  # type: ignore[no-untyped-def]
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() > 0 else 0]
        return allgather_async(tensor, name, process_set).wait()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return *_own_rows(ctx, [gradient]), None, None


def _own_rows(ctx: Any, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The part of this rank in the average of all ranks' gradients."""
    rank = ctx.process_set.rank()
    counts = allgather_async(torch.tensor([ctx.rows]), None, ctx.process_set).wait()
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
        return tuple(grouped_allgather_async(tensors, name, process_set).wait())

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


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts ``broadcast()``. Not differentiable."""
    dense = dense_input(tensor)
    output = torch.empty_like(dense)
    work = start(
        Kind.BROADCAST,
        tensor_tuple(dense),
        tensor_tuple(output),
        name=name,
        root=root_rank,
        process_set=process_set,
        keep=(dense, output),
        stream=stream_of(dense),
    )
    return Handle(work, lambda done: output)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):  # type: ignore[no-untyped-def]
        ctx.arguments = (root_rank, process_set)
        return broadcast_async(tensor, root_rank, name, process_set).wait()

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


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts ``broadcast_()``."""
    place = InPlace([tensor])
    work = start(
        Kind.BROADCAST,
        tensor_tuple(place.dense[0]),
        name=name,
        root=root_rank,
        process_set=process_set,
        keep=place,
        stream=stream_of_first(place.dense),
    )
    return Handle(work, lambda done: place.finish(done)[0])


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """``broadcast()`` in place."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


# --- send and recv -----------------------------------------------------------------------------


def send_async(tensor: torch.Tensor, dst: int, name: str | None = None) -> Handle[None]:
    """Starts ``send()``."""
    dense = dense_input(tensor).cpu()
    work = start(
        Kind.SEND,
        tensor_tuple(dense),
        name=name,
        root=dst,
        process_set=global_process_set,
        keep=dense,
    )
    return Handle(work, lambda done: None)


def send(tensor: torch.Tensor, dst: int, name: str | None = None) -> None:
    """Sends a tensor to another rank, which calls ``recv()``; the other ranks go on.

    Args:
        tensor: of the same shape and type as the receiver's. One on a GPU travels by way of the
            host's memory.
        dst: a rank of the world.
        name: the same at both ends; None: the order of the two ranks' calls counts.
    """
    send_async(tensor, dst, name).wait()


def recv_async(tensor: torch.Tensor, src: int, name: str | None = None) -> Handle[torch.Tensor]:
    """Starts ``recv()``."""
    dense = dense_input(tensor).cpu()
    work = start(
        Kind.RECV,
        tensor_tuple(dense),
        name=name,
        root=src,
        process_set=global_process_set,
        keep=(tensor, dense),
    )

    def finish(done: _core.Work) -> torch.Tensor:
        del done
        if tensor.data_ptr() != dense.data_ptr():
            with torch.no_grad():
                tensor.copy_(dense)
        return tensor

    return Handle(work, finish)


def recv(tensor: torch.Tensor, src: int, name: str | None = None) -> torch.Tensor:
    """Fills ``tensor`` with what rank ``src`` sends, and gives it."""
    return recv_async(tensor, src, name).wait()


# --- alltoall ----------------------------------------------------------------------------------


def _start_alltoall(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    dense = dense_input(tensor)
    rows = None
    device = dense.device
    if splits is not None:
        given = torch.as_tensor(splits)
        if isinstance(splits, torch.Tensor):
            device = splits.device
            if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
                raise ValueError(f"splits are whole numbers, not of type {given.dtype}")
        rows = _work.whole_numbers(given.reshape(-1).tolist())
    work = start(
        Kind.ALLTOALL,
        tensor_tuple(dense),
        name=name,
        splits=rows,
        process_set=process_set,
        keep=dense,
        stream=stream_of(dense),
    )

    def finish(done: _core.Work) -> tuple[torch.Tensor, torch.Tensor]:
        received = torch.tensor(done.received_splits(), dtype=torch.int32, device=device)
        return result_tensor(done, done.results()[0], dense), received

    return Handle(work, finish)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Starts ``alltoall()``. Not differentiable.

    ``synchronize()`` gives two tensors, as ``alltoall()`` does with ``splits``.
    """
    return _start_alltoall(tensor, splits, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):  # type: ignore[no-untyped-def]
        output, received = _start_alltoall(tensor, splits, name, process_set).wait()
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


def _start_reducescatter(
    tensors: Sequence[torch.Tensor],
    grouped: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> Handle[Any]:
    dense = dense_inputs(tensors)
    ins = tensor_tuples(dense)
    work = start(
        Kind.REDUCESCATTER,
        ins if grouped else ins[0],
        name=name,
        op=op,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
        keep=dense,
        stream=stream_of_first(dense),
    )

    def finish(done: _core.Work) -> Any:
        results = [result_tensor(done, *pair) for pair in zip(done.results(), dense)]
        return results if grouped else results[0]

    return Handle(work, finish)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Starts ``reducescatter()``. Not differentiable."""
    return _start_reducescatter(
        [tensor], False, name, op, prescale_factor, postscale_factor, process_set
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
    return _start_reducescatter(
        tensors, True, name, op, prescale_factor, postscale_factor, process_set
    )


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale, postscale, *tensors):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, process_set, prescale * postscale)
        handle = grouped_reducescatter_async(tensors, name, op, process_set, prescale, postscale)
        return tuple(handle.wait())

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        op, process_set, factor = ctx.arguments
        if op == Sum:
            factor *= process_set.size()
        gathered = grouped_allgather([grad * factor for grad in gradients], None, process_set)
        return (None, None, None, None, None, *gathered)


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
    small, context = compression.compress(tensor)
    reduced = _GroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, small
    )[0]
    return compression.decompress(reduced, context)


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
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _GroupedReducescatter.apply(
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        *(small for small, _ in pairs),
    )
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]
