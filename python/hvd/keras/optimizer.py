"""An optimizer of Keras whose gradients are those of all workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from hvd._collectives import ReduceArguments
from hvd._work import Average, ReduceOp
from hvd.basics import ProcessSet, global_process_set
from hvd.compression import Compression

from .gradients import reduce_of_backend


class _Distributed:
    """What an optimizer gets in front of its own class.

    Keras has two ways into a step, of which one may call the other: ``apply()``, and
    ``stateless_apply()`` under JAX. The outer one reduces.
    """

    _hvd_call: ReduceArguments
    _hvd_is_reduced = False

    @contextlib.contextmanager
    def _hvd_reduced(self, gradients: Sequence[Any]) -> Iterator[list[Any]]:
        if self._hvd_is_reduced:
            yield list(gradients)
            return
        self._hvd_is_reduced = True
        try:
            yield self._hvd_reduce(gradients)
        finally:
            self._hvd_is_reduced = False

    def _hvd_reduce(self, gradients: Sequence[Any]) -> list[Any]:
        reduced = list(gradients)
        present = [index for index, gradient in enumerate(reduced) if gradient is not None]
        results = reduce_of_backend()([reduced[index] for index in present], self._hvd_call)
        for index, result in zip(present, results):
            reduced[index] = result
        return reduced

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        with self._hvd_reduced(grads) as reduced:
            return super().apply(reduced, trainable_variables)  # type: ignore[misc]

    def stateless_apply(
        self, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any
    ) -> Any:
        with self._hvd_reduced(grads) as reduced:
            return super().stateless_apply(  # type: ignore[misc]
                optimizer_variables, reduced, trainable_variables
            )


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    compression: int = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes an optimizer of Keras reduce its gradients over all workers before each step.

    Args:
        optimizer: a keras.optimizers.Optimizer. It is changed, and stays of its class: a model that
            is saved with it can be loaded where hvd is not there.
        name: of the gradients, for two optimizers of one program; None: "keras.gradients".
        compression: Compression.none, .fp16 or .bf16: the type in which gradients travel.
        op: Average or Sum.
        gradient_predivide_factor: an average is divided by it before the sum, and by the number of
            workers over it afterwards.
        process_set: the ranks that train this model.

    Returns:
        The optimizer.

    Raises:
        TypeError: it is no optimizer of Keras.
        ValueError: it has been made distributed already, or there is no such op.
        ImportError: hvd does not know the backend of Keras.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"an optimizer of Keras is needed, not {type(optimizer).__name__}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already")
    if op not in (Average, ReduceOp.SUM):
        raise ValueError("op is Average or Sum")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op Average")
    reduce_of_backend()
    kind = type(optimizer)
    optimizer.__class__ = type(
        kind.__name__,
        (_Distributed, kind),
        {"__module__": kind.__module__, "__doc__": kind.__doc__},
    )
    optimizer._hvd_call = ReduceArguments(
        name or "keras.gradients",
        ReduceOp(op),
        1.0 / gradient_predivide_factor,
        gradient_predivide_factor,
        process_set,
        compression,
    )
    return optimizer
