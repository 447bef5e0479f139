"""Collectives on TensorFlow's tensors, outside of ``tf.function`` and in it.

Those of allreduce are in allreduce_ops.py.

Each can be differentiated, as Horovod's can. Ranks call the same collectives with the same names.
Of those without a name the order counts: that of the calls, or in a function that of their places
in it. Arguments that are there for Horovod's signature alone are ``device_dense``,
``device_sparse`` and ``ignore_name_scope``.

Of all calls: InvalidArgumentError (a ValueError) is an argument of this rank that is wrong,
DisagreementError what the ranks say differently, HorovodInternalError the loss of a member. The
first is a ``tf.errors.InvalidArgumentError``, too, and the second a
``tf.errors.FailedPreconditionError``. In a ``tf.function`` they are these alone, and the third a
``tf.errors.AbortedError``, all of which ``hvd.tensorflow.elastic.run`` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd._collectives import ReduceArguments, reduce_arguments
from hvd._work import Average, Kind, ReduceOp, Sum
from hvd.basics import ProcessSet, global_process_set, number_of
from hvd.compression import built_in_of, compressed

from . import kernels
from .adapter import collectives
from .compression import Compression
from .kernels import not_converted
from .places import rank_op, size_op

allgather_async = collectives.allgather_async
allreduce_async = collectives.allreduce_async
alltoall_async = collectives.alltoall_async
broadcast_async = collectives.broadcast_async
grouped_allgather_async = collectives.grouped_allgather_async
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_reducescatter_async = collectives.grouped_reducescatter_async
reducescatter_async = collectives.reducescatter_async
send = collectives.send
send_async = collectives.send_async

Gradient = Callable[..., Any]


def _differentiable(
    given: Sequence[Any],
    results_of: Callable[[list[tf.Tensor]], list[tf.Tensor]],
    gradients_of: Callable[[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]], list[Any]],
) -> list[tf.Tensor]:
    """``gradients_of(given, results, gradients of the results)``."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def call(*tensors: tf.Tensor) -> Any:
        results = results_of(list(tensors))

        def gradient(*gradients: tf.Tensor) -> Any:
            return gradients_of(list(tensors), results, list(gradients))

        return results, gradient

    return list(call(*(tf.convert_to_tensor(tensor) for tensor in given)))


def plain_call(name: str | None, process_set: ProcessSet) -> ReduceArguments:
    """What a collective is told that does not reduce, or by an average."""
    return ReduceArguments(name=name, process_set=process_set)


# --- allreduce -------------------------------------------------------------------------------


# Tensors that are reduced as one group, or one by itself.
Part = tuple[list[Any], ReduceArguments]


def reduce_parts(parts: Sequence[Part]) -> list[tf.Tensor]:
    """Reduces all, which are on their way together. Gives their results one after the other.

    In a function each part starts when its tensors are computed. Not differentiable.
    """
    if not parts:
        return []
    compression = parts[0][1].compression
    if built_in_of(compression) is None:
        return _compressed(parts, compression)
    if not tf.executing_eagerly():
        # A backward pass comes to the last one first, and the graph starts them in this order.
        started = [kernels.Started(Kind.ALLREDUCE, *part) for part in reversed(parts)]
        return kernels.Started.wait(started[::-1])
    handles = [
        collectives.start_allreduce(tensors, call, grouped=len(tensors) > 1)
        for tensors, call in parts
    ]
    results = [(handle.wait(), len(part[0])) for handle, part in zip(handles, parts)]
    return [one for result, count in results for one in (result if count > 1 else [result])]


def _compressed(parts: Sequence[Part], compression: Any) -> list[tf.Tensor]:
    """``reduce_parts()`` with a compression of the program's own."""

    def reduce(tensors: list[Any], number: int) -> list[tf.Tensor]:
        left = iter(tensors)
        return reduce_parts(
            [
                ([next(left) for _ in given], call._replace(compression=number))
                for given, call in parts
            ]
        )

    return compressed(compression, [one for given, _ in parts for one in given], reduce)


def reduce_group(tensors: Sequence[Any], call: ReduceArguments) -> list[tf.Tensor]:
    """Reduces tensors as one group."""

    def gradients_of(given: Any, results: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        del given, results
        if call.op not in (Average, Sum):
            raise NotImplementedError(
                f"an allreduce by {ReduceOp(call.op).name} cannot be differentiated"
            )
        return reduce_group(gradients, call._replace(name=None))

    return _differentiable(tensors, lambda given: reduce_parts([(given, call)]), gradients_of)


# --- allgather -------------------------------------------------------------------------------


@not_converted
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Puts the tensors of all ranks together along their first dimension, in their order.

    The first dimension may differ from rank to rank; the others may not. The gradient of this
    rank's rows is the average of what all ranks have there.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@not_converted
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """``allgather()`` of several tensors together."""
    del ignore_name_scope

    def results_of(given: list[tf.Tensor]) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            return collectives.grouped_allgather(given, name, process_set)
        return kernels.exchange(Kind.ALLGATHER, given, plain_call(name, process_set))[0]

    def gradients_of(given: Any, results: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        del results
        reduced = reduce_group(gradients, plain_call(None, process_set))
        rows = tf.stack([tf.shape(tensor)[0] for tensor in given])
        counts = allgather(rows[tf.newaxis], process_set=process_set)
        before = tf.reduce_sum(counts[: rank_op(process_set=process_set)], axis=0)
        return [
            gradient[before[index] : before[index] + rows[index]]
            for index, gradient in enumerate(reduced)
        ]

    return _differentiable(tensors, results_of, gradients_of)


# --- broadcast -------------------------------------------------------------------------------


@not_converted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Gives every rank the root's tensor, as a new tensor.

    Args:
        root_rank: a rank of the world, also with a process set.

    The root's gradient is the average of those of all ranks; that of the others is zero.
    """
    del ignore_name_scope

    def results_of(given: list[tf.Tensor]) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            return [collectives.broadcast(given[0], root_rank, name, process_set)]
        call = plain_call(name, process_set)
        return kernels.Started.wait([kernels.Started(Kind.BROADCAST, given, call, root_rank)])

    def gradients_of(given: Any, results: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        del given, results
        reduced = reduce_group(gradients, plain_call(None, process_set))[0]
        is_root = tf.equal(rank_op(), root_rank)
        return [tf.where(is_root, reduced, tf.zeros_like(reduced))]

    return _differentiable([tensor], results_of, gradients_of)[0]


# --- alltoall --------------------------------------------------------------------------------


@not_converted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
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
    del ignore_name_scope

    def results_of(given: list[tf.Tensor]) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            started = collectives.start_alltoall(
                given[0], splits, name, process_set, with_rows=True
            )
            return list(started.wait())
        call = plain_call(name, process_set)
        results, received = kernels.exchange(Kind.ALLTOALL, given, call, splits)
        return [*results, received]

    def gradients_of(given: Any, results: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        own, _ = alltoall(gradients[0], results[1], process_set=process_set)
        # Rows that were not sent.
        missing = tf.shape(given[0])[0] - tf.shape(own)[0]
        padding = [[0, missing], *[[0, 0]] * (len(given[0].shape) - 1)]
        return [tf.pad(own, padding)]

    output, received = _differentiable([tensor], results_of, gradients_of)
    return output if splits is None else (output, received)


# --- reducescatter ---------------------------------------------------------------------------


@not_converted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces as ``allreduce()`` does, and gives each rank its share of the rows.

    If the rows cannot be shared out evenly, the first ranks have one more. Ranks that have called
    ``join()`` count here, too: the rows that would be theirs are lost.
    """
    return grouped_reducescatter(
        [tensor],
        device_dense,
        compression,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        name,
    )[0]


@not_converted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[tf.Tensor]:
    """``reducescatter()`` of several tensors together."""
    del device_dense
    call = reduce_arguments(
        None, name, op, prescale_factor, postscale_factor, process_set, compression
    )

    def results_of(given: list[tf.Tensor]) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            return collectives.start_reducescatter(given, call, grouped=True).wait()
        return kernels.exchange(Kind.REDUCESCATTER, given, call)[0]

    def gradients_of(given: Any, results: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        del given, results
        factor: Any = call.prescale * call.postscale
        if call.op == Sum:
            factor *= tf.cast(size_op(number_of(process_set)), tf.float64)
        scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
        return grouped_allgather(scaled, process_set=process_set)

    return _differentiable(tensors, results_of, gradients_of)
