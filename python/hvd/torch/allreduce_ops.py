"""Allreduce of PyTorch's tensors: alone, in groups, in place, of sparse ones.

The rules of all collectives stand in ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from hvd import _core
from hvd._work import Handle, Kind, ReduceOp, choose_op
from hvd.basics import ProcessSet, global_process_set

from .compression import Compression, Compressor, built_in_of
from .operands import InPlace, dense_input, dense_inputs, start, stream_of_first, tensor_tuples
from .tensors import result_tensor, stream_of, tensor_tuple


class _Call(NamedTuple):
    """The arguments that all forms of an allreduce have."""

    name: str | None
    op: ReduceOp
    prescale: float
    postscale: float
    process_set: ProcessSet
    compression: type[Compressor] = Compression.none


def _start_allreduce(
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor] | None,
    grouped: bool,
    finish: Callable[[_core.Work], Any],
    call: _Call,
) -> Handle[Any]:
    ins = tensor_tuples(inputs)
    outs = None if outputs is None else tensor_tuples(outputs)
    work = start(
        Kind.ALLREDUCE,
        ins if grouped else ins[0],
        outs if grouped or outs is None else outs[0],
        name=call.name,
        op=call.op,
        prescale=call.prescale,
        postscale=call.postscale,
        compression=built_in_of(call.compression) or 0,
        process_set=call.process_set,
        keep=(inputs, outputs),
        stream=stream_of_first(inputs),
    )
    return Handle(work, finish)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts ``allreduce()``. Not differentiable."""
    dense = dense_input(tensor)
    output = torch.empty_like(dense)
    return _start_allreduce(
        [dense],
        [output],
        False,
        lambda work: output,
        _Call(name, choose_op(op, average), prescale_factor, postscale_factor, process_set),
    )


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, call):  # type: ignore[no-untyped-def]
        ctx.call = call
        dense = dense_input(tensor)
        output = torch.empty_like(dense)
        _start_allreduce(
            [dense],
            [output],
            False,
            lambda work: None,
            call,
        ).wait()
        return output

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return _Allreduce.apply(gradient, ctx.call._replace(name=None)), None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor element by element over all ranks. Gives a new tensor.

    Args:
        tensor: of the same shape and type on all ranks.
        average: the older form of ``op``: True for Average, False for Sum.
        name: the same on all ranks; None: numbered by the order of the calls.
        compression: Compression.none, .fp16, .bf16, or a Compressor of your own.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: elements are multiplied by them before and after.
        process_set: the ranks that take part.

    The gradient of a sum or an average is reduced in the same way.
    """
    call = _Call(name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    if built_in_of(compression) is not None:
        return _Allreduce.apply(tensor, call._replace(compression=compression))
    small, context = compression.compress(tensor)
    return compression.decompress(_Allreduce.apply(small, call), context)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts ``allreduce_()``."""
    place = InPlace([tensor])
    return _start_allreduce(
        place.dense,
        None,
        False,
        lambda work: place.finish(work)[0],
        _Call(name, choose_op(op, average), prescale_factor, postscale_factor, process_set),
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """``allreduce()`` in place."""
    return allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts ``grouped_allreduce()``. Not differentiable."""
    dense = dense_inputs(tensors)
    outputs = [torch.empty_like(tensor) for tensor in dense]
    return _start_allreduce(
        dense,
        outputs,
        True,
        lambda work: outputs,
        _Call(name, choose_op(op, average), prescale_factor, postscale_factor, process_set),
    )


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, prescale, postscale, process_set, *tensors):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, prescale, postscale, process_set)
        handle = grouped_allreduce_async(tensors, None, name, op, prescale, postscale, process_set)
        return tuple(handle.wait())

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        reduced = _GroupedAllreduce.apply(None, *ctx.arguments, *gradients)
        return (None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """``allreduce()`` of several tensors, which are reduced together, when all are there."""
    small, contexts = [], []
    for tensor in tensors:
        one, context = compression.compress(tensor)
        small.append(one)
        contexts.append(context)
    reduced = _GroupedAllreduce.apply(
        name, choose_op(op, average), prescale_factor, postscale_factor, process_set, *small
    )
    return [compression.decompress(one, context) for one, context in zip(reduced, contexts)]


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts ``grouped_allreduce_()``."""
    place = InPlace(tensors)
    return _start_allreduce(
        place.dense,
        None,
        True,
        place.finish,
        _Call(name, choose_op(op, average), prescale_factor, postscale_factor, process_set),
    )


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """``grouped_allreduce()`` in place."""
    return grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse tensor: Average or Sum.

    Returns:
        A function that waits for the result, a sparse tensor, and gives it.
    """
    return start_sparse_allreduce(tensor, name, op, process_set).wait


def start_sparse_allreduce(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet
) -> Handle[torch.Tensor]:
    """Starts ``sparse_allreduce_async()``, and returns its handle."""
    sparse = tensor.detach().coalesce()
    # Rows are numbered by one vector each, and torch keeps these as columns.
    indices = sparse.indices().t().contiguous()
    values = sparse.values().contiguous()
    work = start(
        Kind.SPARSE_ALLREDUCE,
        [tensor_tuple(indices), tensor_tuple(values)],
        name=name,
        op=op,
        process_set=process_set,
        keep=(indices, values),
        stream=stream_of(values),
    )

    def finish(done: _core.Work) -> torch.Tensor:
        first, second = done.results()
        rows = result_tensor(done, first, indices)
        return torch.sparse_coo_tensor(
            rows.t(), result_tensor(done, second, values), sparse.size()
        ).coalesce()

    return Handle(work, finish)
