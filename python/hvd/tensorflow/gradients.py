"""Tapes and optimizers whose gradients are those of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd._collectives import ReduceArguments, gradient_arguments
from hvd._work import Average
from hvd.basics import ProcessSet, global_process_set, number_of

from .allreduce_ops import reduce_mixed
from .compression import Compression
from .kernels import not_converted
from .places import size_op


class Reduction:
    """How the gradients of a tape or an optimizer are reduced.

    Args:
        call: with the name of the gradients.
        sparse_as_dense: ``tf.IndexedSlices`` become tensors first.
        groups: None: each gradient by itself; a number: that many groups; or a list of lists of
            variables, of which each is a group.
    """

    def __init__(
        self, call: ReduceArguments, sparse_as_dense: bool = False, groups: Any = None
    ) -> None:
        if isinstance(groups, int) and groups < 0:
            raise ValueError("groups must be a non-negative integer or a list of lists")
        if not (groups is None or isinstance(groups, (int, list, tuple))):
            raise ValueError("groups must be a non-negative integer or a list of lists")
        self._call = call
        self._sparse_as_dense = sparse_as_dense
        self._groups: Any = groups

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any] = ()) -> list[Any]:
        """Reduces a list, in which None stays None. A rank that is no member keeps its own."""
        if not self._call.process_set.included():
            return list(gradients)
        given = [
            tf.convert_to_tensor(one)
            if self._sparse_as_dense and isinstance(one, tf.IndexedSlices)
            else one
            for one in gradients
        ]
        return reduce_mixed(given, self._call, self._parts(len(given), variables))

    def _parts(self, count: int, variables: Sequence[Any]) -> list[list[int]]:
        """The indices of each group."""
        if not self._groups:
            return [[index] for index in range(count)]
        if isinstance(self._groups, int):
            size = -(-count // self._groups)
            return [list(range(i, min(i + size, count))) for i in range(0, count, size)]
        index_of = {id(variable): index for index, variable in enumerate(variables)}
        groups = [
            [index_of[id(one)] for one in group if id(one) in index_of] for group in self._groups
        ]
        grouped = {index for group in groups for index in group}
        return [*groups, *([index] for index in range(count) if index not in grouped)]


def reduction(
    name: str,
    *,
    compression: Any,
    op: int,
    gradient_predivide_factor: float,
    process_set: ProcessSet,
    sparse_as_dense: bool,
    groups: Any,
) -> Reduction:
    """Checks the arguments of a tape. Raises ValueError."""
    call = gradient_arguments(name, op, gradient_predivide_factor, process_set, compression)
    return Reduction(call, sparse_as_dense, groups)


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """A tape over another one. Its gradients are reduced."""

    def __init__(
        self,
        tape: tf.GradientTape,
        reduction: Reduction,
        process_set: ProcessSet,
        scale_local_gradients: bool,
        local_sources: Sequence[Any],
    ) -> None:
        # The state of the tape itself: what it records is in here, too.
        self.__dict__.update(tape.__dict__)
        self._hvd_tape = tape
        self._hvd_reduction = reduction
        self._hvd_process_set = process_set
        self._hvd_scales = scale_local_gradients
        self._hvd_local = list(local_sources)

    def __enter__(self) -> _DistributedTape:
        self._hvd_tape.__enter__()
        self.__dict__.update(self._hvd_tape.__dict__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._hvd_tape.__exit__(*error)
        self.__dict__.update(self._hvd_tape.__dict__)

    def register_local_source(self, source: Any) -> None:
        """The gradient of this variable stays that of this worker."""
        self._hvd_local.append(source)

    @not_converted
    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        """As that of a tape, with the gradients of all workers."""
        options.pop("use_process_set", None)  # of Horovod's signature
        gradients = self._hvd_tape.gradient(target, sources, *arguments, **options)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        variables = tf.nest.flatten(sources, expand_composites=False)
        return tf.nest.pack_sequence_as(sources, self._hvd_reduce(flat, variables))

    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], *arguments: Any, **options: Any
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """``gradient()`` as pairs of a variable and its gradient: those of local sources first."""
        gradients = self.gradient(target, sources, *arguments, **options)
        local = {id(source) for source in self._hvd_local}
        pairs = list(zip(sources, gradients))
        return (
            [pair for pair in pairs if id(pair[0]) in local],
            [pair for pair in pairs if id(pair[0]) not in local],
        )

    def _hvd_reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        local = {id(source) for source in self._hvd_local}
        results = list(gradients)
        others = [i for i, one in enumerate(variables) if id(one) not in local]
        reduced = self._hvd_reduction.reduce(
            [results[i] for i in others], [variables[i] for i in others]
        )
        for i, gradient in zip(others, reduced):
            results[i] = gradient
        if self._hvd_scales and len(others) < len(results):
            size = size_op(number_of(self._hvd_process_set))
            for i in set(range(len(results))) - set(others):
                results[i] = divided(results[i], size)
        return results


def divided(gradient: Any, size: Any) -> Any:
    """A gradient of a local variable, of the same weight as those of all."""
    if isinstance(gradient, tf.IndexedSlices):
        values = divided(gradient.values, size)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient / tf.cast(size, gradient.dtype)


@not_converted
def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    name: str | None = None,
) -> Any:
    """Makes a tape whose ``gradient()`` gives the gradients of all workers.

    Args:
        gradtape: a tf.GradientTape, which records, or has recorded.
        device_dense, device_sparse: of Horovod's signature.
        compression: Compression.none, .fp16, .bf16, or a Compressor of your own.
        sparse_as_dense: tf.IndexedSlices become tensors first.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: an average is divided by it before the sum, and by the number of
            workers over it afterwards.
        num_groups: the older form of ``groups``.
        groups: None: each gradient travels as soon as it is there; a number: in that many groups;
            a list of lists of variables: each is a group.
        process_set: the ranks that train this model.
        scale_local_gradients: those of local sources (``register_local_source()``) are divided by
            the number of workers.
        name: of the gradients; None: "gradient".

    Raises:
        ValueError: an argument makes no sense.
    """
    del device_dense, device_sparse
    made = reduction(
        name or "gradient",
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        sparse_as_dense=sparse_as_dense,
        groups=groups if groups is not None else num_groups,
    )
    return _DistributedTape(gradtape, made, process_set, scale_local_gradients, ())


@not_converted
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    *arguments: Any,
    local_layers: Any = None,
    **options: Any,
) -> Any:
    """``DistributedGradientTape()``, with the variables of ``local_layers`` as local sources.

    Args:
        arguments, options: those of ``DistributedGradientTape()``.
        local_layers: a layer of Keras, or several.
    """
    tape = DistributedGradientTape(gradtape, *arguments, **options)
    layers = [] if local_layers is None else local_layers
    for layer in layers if isinstance(layers, (list, tuple, set)) else [layers]:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
