"""An optimizer of Keras whose gradients are those of all workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from hvd._collectives import gradient_arguments
from hvd._work import Average, Sum
from hvd.basics import ProcessSet, global_process_set
from hvd.compression import Compression
from hvd.shards import shards_of

from .gradients import Settings, ShardSteps, reduce_of_backend, scaled


class _Distributed:
    """What an optimizer gets in front of its own class.

    Keras has two ways into a step, of which one may call the other: ``apply()``, and
    ``stateless_apply()`` under JAX. The outer one reduces.
    """

    # Of the class, so that from_config() makes optimizers with the same.
    _hvd_settings: Settings
    _hvd_is_reduced = False
    _trainable_variables: list[Any]

    def register_local_var(self, variable: Any) -> None:
        """The gradient of this variable stays that of this worker. Not with shards: ValueError."""
        if self._hvd_settings.shards > 0:
            raise ValueError("an optimizer with shards has no local variables")
        self._hvd_local().append(variable)

    def _hvd_local(self) -> list[Any]:
        # Not an attribute as Keras sees them: it would save it with the optimizer.
        local: list[Any] = self.__dict__.setdefault("_hvd_local_variables", [])
        return local

    @contextlib.contextmanager
    def _hvd_reduced(
        self, gradients: Sequence[Any], given: Any = None
    ) -> Iterator[list[Any] | None]:
        """Gives the gradients of all workers; None: more shards of this worker come first."""
        if self._hvd_is_reduced:
            yield list(gradients)
            return
        self._hvd_is_reduced = True
        try:
            variables = self._trainable_variables if given is None else given
            yield self._hvd_reduce(list(gradients), list(variables))
        finally:
            self._hvd_is_reduced = False

    def _hvd_reduce(self, gradients: list[Any], variables: list[Any]) -> list[Any] | None:
        settings = self._hvd_settings
        if not settings.call.process_set.included():
            return gradients
        if settings.shards > 0:
            return self._hvd_reduce_shards(gradients)
        local = {id(variable) for variable in self._hvd_local()}
        results = list(gradients)
        present = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables)):
            if id(variable) in local:
                results[index] = scaled(gradient, settings)
            elif gradient is not None:
                present.append(index)
        if present:
            own, theirs = zip(*((gradients[index], variables[index]) for index in present))
            for index, result in zip(present, reduce_of_backend()(own, theirs, settings)):
                results[index] = result
        return results

    def _hvd_reduce_shards(self, gradients: list[Any]) -> list[Any] | None:
        # As above, not an attribute as Keras sees them.
        if "_hvd_shard_steps" not in self.__dict__:
            self.__dict__["_hvd_shard_steps"] = ShardSteps(self._hvd_settings)
        there = [index for index, one in enumerate(gradients) if one is not None]
        reduced = self.__dict__["_hvd_shard_steps"].add([gradients[index] for index in there])
        if reduced is None:
            return None
        results: list[Any] = [None] * len(gradients)
        for index, one in zip(there, reduced):
            results[index] = one
        return results

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        with self._hvd_reduced(grads, trainable_variables) as reduced:
            if reduced is None:
                return None
            return super().apply(reduced, trainable_variables)  # type: ignore[misc]

    def stateless_apply(
        self, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any
    ) -> Any:
        with self._hvd_reduced(grads) as reduced:
            if reduced is None:
                return trainable_variables, optimizer_variables
            return super().stateless_apply(  # type: ignore[misc]
                optimizer_variables, reduced, trainable_variables
            )


def _check(optimizer: Any, passes: int) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"an optimizer of Keras is needed, not {type(optimizer).__name__}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is at least 1, not {passes}")
    if passes > 1 and optimizer.built:
        raise ValueError("backward_passes_per_step is for an optimizer that is not built yet")


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    *,
    shards: int = 0,
    deterministic: bool = False,
) -> Any:
    """Makes an optimizer of Keras reduce its gradients over all workers before each step.

    Args:
        optimizer: a keras.optimizers.Optimizer. It is changed, and stays of its class: a model that
            is saved with it can be loaded where hvd is not there.
        name: of the gradients, for two optimizers of one program; None: "keras.gradients".
        device_dense, device_sparse: of Horovod's signature.
        compression: Compression.none, .fp16, .bf16, or a Compressor of the backend's tensors.
        sparse_as_dense: on TensorFlow, slices become tensors first.
        op: Average or Sum.
        gradient_predivide_factor: an average is divided by it before the sum, and by the number of
            workers over it afterwards.
        backward_passes_per_step: the optimizer's ``gradient_accumulation_steps``. Each batch is
            reduced.
        average_aggregated_gradients: a step takes the average of these batches, not their sum.
        num_groups: the older form of ``groups``.
        groups: on TensorFlow, a number of groups, or a list of lists of variables, that are reduced
            together; the other backends reduce all as one group.
        process_set: the ranks that train this model; the others take their own gradients.
        scale_local_gradients: those of local variables (``register_local_var()``) are divided by
            the number of workers.
        shards: each batch is a shard, of so many that a step has, whatever the number of workers;
            the optimizer makes its step with the last one of this worker. In functions that are
            not compiled.
        deterministic: the gradients of shards are added along a tree that only their number
            determines, so that they have the same bits in each world.

    Returns:
        The optimizer.

    Raises:
        TypeError: it is no optimizer of Keras.
        ValueError: it has been made distributed already, or an argument makes no sense.
        ImportError: hvd does not know the backend of Keras.
    """
    del device_dense, device_sparse
    passes = backward_passes_per_step
    _check(optimizer, passes)
    reduce_of_backend()
    if shards != 0:
        shards_of(shards, 0, 1)  # raises for a number that cannot be
        if passes > 1 or compression is not Compression.none or gradient_predivide_factor != 1.0:
            raise ValueError(
                "shards know neither backward_passes_per_step, compression nor a predivide factor"
            )
    elif deterministic:
        raise ValueError("deterministic is for an optimizer with shards")
    factor = 1.0 if average_aggregated_gradients else float(passes)  # Keras has the average
    call = gradient_arguments(
        name or "keras.gradients",
        op,
        gradient_predivide_factor,
        process_set,
        compression,
        ops=(Average, Sum),
    )
    call = call._replace(postscale=call.postscale * factor)
    settings = Settings(
        call,
        sparse_as_dense,
        groups if groups is not None else num_groups,
        factor,
        scale_local_gradients,
        shards,
        deterministic,
    )
    kind = type(optimizer)
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "_hvd_settings": settings}
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), members)
    if passes > 1:
        optimizer.gradient_accumulation_steps = passes
    return optimizer


def PartialDistributedOptimizer(
    optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any
) -> Any:
    """``DistributedOptimizer()``, with the variables of ``local_layers`` as local ones.

    Args:
        arguments, options: those of ``DistributedOptimizer()``.
        local_layers: a layer of Keras, or several.

    Raises:
        ValueError: one of them is no layer.
    """
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else local_layers or []
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers are layers of Keras, not {type(layer).__name__}")
    made = DistributedOptimizer(optimizer, *arguments, **options)
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_var(variable)
    return made
