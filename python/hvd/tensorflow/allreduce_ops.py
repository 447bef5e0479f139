"""Allreduce of tensors and ``tf.IndexedSlices``; the rules of all collectives stand in ops.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd._collectives import ReduceArguments, reduce_arguments
from hvd._work import Average, ReduceOp, Sum
from hvd.basics import ProcessSet, global_process_set, number_of

from .compression import Compression
from .kernels import not_converted
from .ops import Part, allgather, reduce_group, reduce_parts
from .places import size_op


def reduce_slices(slices: tf.IndexedSlices, call: ReduceArguments) -> tf.IndexedSlices:
    """Reduces slices: those of all ranks, one after the other, divided by the ranks' number."""
    if call.op not in (Average, Sum):
        raise NotImplementedError(
            f"an allreduce of IndexedSlices is a sum or an average, not {ReduceOp(call.op).name}"
        )
    name = call.name
    values, indices = (
        allgather(part, name and f"{name}.{kind}", process_set=call.process_set)
        for kind, part in (("values", slices.values), ("indices", slices.indices))
    )
    factor = call.prescale * call.postscale
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    if call.op == Average:
        values /= tf.cast(size_op(number_of(call.process_set)), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@not_converted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor element by element over all ranks, and gives every rank the result.

    Of ``tf.IndexedSlices`` the values and indices of all ranks are put together, and an average
    divides by their number.

    Args:
        tensor: of the same shape and type on all ranks; slices may differ in their number.
        average: the older form of ``op``: True for Average, False for Sum.
        compression: Compression.none, .fp16, .bf16, or a Compressor of your own.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: elements are multiplied by them before and after.
        name: the same on all ranks.
        process_set: the ranks that take part.

    The gradient of a sum or an average is reduced in the same way; others have none.
    """
    del device_dense, device_sparse, ignore_name_scope
    call = reduce_arguments(
        average, name, op, prescale_factor, postscale_factor, process_set, compression
    )
    if isinstance(tensor, tf.IndexedSlices):
        return reduce_slices(tensor, call)
    return reduce_group([tensor], call)[0]


@not_converted
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """``allreduce()`` of several tensors, which are reduced together, when all are there."""
    del device_dense, device_sparse, ignore_name_scope
    call = reduce_arguments(
        average, name, op, prescale_factor, postscale_factor, process_set, compression
    )
    indices = list(range(len(tensors)))
    return reduce_mixed(tensors, call, [indices], lambda parts: reduce_group(*parts[0]))


def reduce_mixed(
    given: Sequence[Any],
    call: ReduceArguments,
    parts: Sequence[Sequence[int]],
    reduce: Callable[[list[Part]], list[tf.Tensor]] = reduce_parts,
) -> list[Any]:
    """Reduces tensors, and ``tf.IndexedSlices`` each by itself. What is None stays so.

    Args:
        parts: the indices of those that are to be reduced together.
    """
    results: list[Any] = list(given)
    sparse = [i for i, one in enumerate(results) if isinstance(one, tf.IndexedSlices)]
    left_out = {*sparse, *(i for i, one in enumerate(results) if one is None)}
    dense = [[i for i in part if i not in left_out] for part in parts]
    dense = [part for part in dense if part]
    if dense:
        named = [
            ([results[i] for i in part], _numbered(call, number, len(dense)))
            for number, part in enumerate(dense)
        ]
        for i, result in zip((i for part in dense for i in part), reduce(named)):
            results[i] = result
    for i in sparse:
        own = call._replace(name=call.name and f"{call.name}.slices.{i}")
        results[i] = reduce_slices(results[i], own)
    return results


def _numbered(call: ReduceArguments, number: int, count: int) -> ReduceArguments:
    if call.name is None or count == 1:
        return call
    return call._replace(name=f"{call.name}.{number}.of.{count}")
