"""Bringing all ranks to the same variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from hvd._work import Kind
from hvd.basics import ProcessSet, global_process_set

from . import kernels
from .adapter import collectives
from .kernels import not_converted
from .ops import plain_call


def broadcast_values(
    values: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> list[tf.Tensor]:
    """The root's values, as new tensors."""
    if tf.executing_eagerly():
        return collectives.broadcast_list(values, root_rank, "variable", process_set)
    started = [
        kernels.Started(
            Kind.BROADCAST, [value], plain_call(f"variable.{index}", process_set), root_rank
        )
        for index, value in enumerate(values)
    ]
    return kernels.Started.wait(started) if started else []


@not_converted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> None:
    """Gives all ranks the root's values of these variables; also in a ``tf.function``.

    Args:
        variables: in the same order on all ranks: tf.Variable, or those of Keras.
        root_rank: a rank of the world, also with a process set.
        inplace: of Horovod's signature; nothing depends on it.
    """
    del inplace
    kept = list(variables)
    values = broadcast_values([_value_of(one) for one in kept], root_rank, process_set)
    for variable, value in zip(kept, values):
        variable.assign(value)


@not_converted
def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """``broadcast_variables()``, which gives the variables back."""
    del name
    kept = list(variables)
    broadcast_variables(kept, root_rank, process_set)
    return kept


def broadcast_global_variables(root_rank: int) -> None:
    """Raises NotImplementedError: TensorFlow 2 has no global variables."""
    raise NotImplementedError(
        "TensorFlow 2 has no global variables, and hvd.tensorflow has no calls for sessions of "
        "TensorFlow 1: use broadcast_variables(model.variables, root_rank)"
    )


def _value_of(variable: Any) -> Any:
    # Variables of Keras 3 hold one of TensorFlow.
    return tf.convert_to_tensor(variable)
