"""Allreduce of PyTorch's tensors as it can be differentiated, and of sparse ones.

The rules of all collectives stand in ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hvd import _core
from hvd._collectives import reduce_arguments
from hvd._work import Handle, Kind
from hvd.basics import ProcessSet, global_process_set

from .adapter import collectives
from .compression import Compression, Compressor, built_in_of
from .tensors import result_tensor


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, grouped, *tensors):  # type: ignore[no-untyped-def]
        ctx.arguments = (call, grouped)
        reduced = collectives.start_allreduce(tensors, call, grouped=grouped).wait()
        return tuple(reduced) if grouped else reduced

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        call, grouped = ctx.arguments
        reduced = _Allreduce.apply(call._replace(name=None), grouped, *gradients)
        return None, None, *(reduced if grouped else [reduced])


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
    call = reduce_arguments(average, name, op, prescale_factor, postscale_factor, process_set)
    if built_in_of(compression) is not None:
        return _Allreduce.apply(call._replace(compression=compression), False, tensor)
    small, context = compression.compress(tensor)
    return compression.decompress(_Allreduce.apply(call, False, small), context)


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
    call = reduce_arguments(average, name, op, prescale_factor, postscale_factor, process_set)
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _Allreduce.apply(call, True, *(small for small, _ in pairs))
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs)]


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

    def finish(done: _core.Work) -> torch.Tensor:
        first, second = done.results()
        rows = result_tensor(done, first, indices)
        return torch.sparse_coo_tensor(
            rows.t(), result_tensor(done, second, values), sparse.size()
        ).coalesce()

    return collectives.start(
        Kind.SPARSE_ALLREDUCE,
        [indices, values],
        None,
        finish,
        grouped=True,
        name=name,
        op=op,
        process_set=process_set,
    )
