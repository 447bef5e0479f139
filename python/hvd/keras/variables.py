"""The variables of models and optimizers of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import hvd
from hvd.arrays import collectives

from .optimizer import DistributedOptimizer


def sync_model(model: Any) -> None:
    """Brings what ``fit()`` has in hand into the variables, and has it take them from there.

    Only the backend JAX keeps them elsewhere meanwhile.
    """
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def build_optimizer(model: Any, optimizer: Any) -> None:
    """Makes the variables of the optimizer of a model that is built, if they are not there yet."""
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def variables_of(model: Any, optimizer: Any = None) -> list[Any]:
    """The variables of a model and of its optimizer, in the order in which both were built."""
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    return [*model.variables, *(() if optimizer is None else optimizer.variables)]


def values_of(variables: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Their values, as copies."""
    return [np.array(keras.ops.convert_to_numpy(variable.value)) for variable in variables]


def set_values(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Raises ValueError if there are more or fewer of them, or one has another shape."""
    if len(variables) != len(values):
        raise ValueError(
            f"there are {len(variables)} variables here, and {len(values)} values: models and "
            "optimizers must be built in the same way on all workers"
        )
    for variable, value in zip(variables, values):
        variable.assign(value)


def broadcast_global_variables(
    root_rank: int,
    model: Any = None,
    process_set: hvd.ProcessSet = hvd.global_process_set,
    local_variables: Sequence[Any] = (),
) -> None:
    """Gives all ranks the root's variables of a model and of its optimizer, but the local ones."""
    if model is None:
        raise ValueError("Keras 3 has no global variables: give the model, model=...")
    sync_model(model)
    local = {id(variable) for variable in local_variables}
    variables = [variable for variable in variables_of(model) if id(variable) not in local]
    values = collectives.broadcast_list(
        values_of(variables), root_rank, "keras.variable", process_set
    )
    set_values(variables, values)


def load_model(
    filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, **options: Any
) -> Any:
    """``keras.models.load_model()``, whose optimizer is made distributed.

    Args:
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: those of Keras, by their names.
        options: those of ``DistributedOptimizer()``.
    """
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known or None)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **options)
    return model
