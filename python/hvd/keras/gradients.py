"""The reduction of gradients by the calls of the framework that Keras runs on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from hvd import basics
from hvd._collectives import ReduceArguments
from hvd.basics import number_of
from hvd.compression import compressed
from hvd.shards import ShardReducer

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"hvd.keras is for Keras 3, and this is Keras {keras.__version__}")


class Settings(NamedTuple):
    """How an optimizer reduces its gradients: the arguments of ``DistributedOptimizer()``."""

    call: ReduceArguments
    sparse_as_dense: bool
    groups: Any
    factor: float  # of each batch of a step
    scales_local: bool
    shards: int = 0  # of a step; 0: there are none
    deterministic: bool = False


# Gradients, and their variables.
Reduce = Callable[[Sequence[Any], Sequence[Any], Settings], list[Any]]


def _as_one_group(
    start: Callable[[list[Any], ReduceArguments], list[Any]],
) -> Reduce:
    def reduce(gradients: Sequence[Any], variables: Sequence[Any], settings: Settings) -> list[Any]:
        del variables
        call = settings.call
        return compressed(
            call.compression,
            gradients,
            lambda given, number: start(given, call._replace(compression=number)),
        )

    return reduce


def _by_torch(gradients: list[Any], call: ReduceArguments) -> list[Any]:
    from hvd.torch.adapter import collectives

    # Keras throws the gradients away after the step, so they are reduced where they lie.
    return collectives.start_allreduce_in_place(gradients, call, grouped=True).wait()


def _by_jax(gradients: list[Any], call: ReduceArguments) -> list[Any]:
    from hvd.jax import ops

    return ops.reduce_tree(gradients, call)


def _by_tensorflow(
    gradients: Sequence[Any], variables: Sequence[Any], settings: Settings
) -> list[Any]:
    from hvd.tensorflow.gradients import Reduction

    reduction = Reduction(settings.call, settings.sparse_as_dense, settings.groups)
    return reduction.reduce(gradients, variables)


class ShardSteps:
    """The steps of an optimizer over shards, of which each call of the program brings one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reducer: ShardReducer | None = None
        self._arrays: list[np.ndarray[Any, Any]] = []
        self._loop: Iterator[int] | None = None
        self._generation = -1  # of the loop

    def add(self, gradients: Sequence[Any]) -> list[Any] | None:
        """Takes the gradients of the next shard of this rank.

        Returns:
            Those of all shards, after the last one; else None.

        Raises:
            RuntimeError: this is a function that the backend compiles.
            ValueError: this rank has no shards in this world.
        """
        given = [_on_host(one) for one in gradients]
        if self._reducer is None:
            self._make_reducer(given)
        assert self._reducer is not None
        if self._loop is None or self._generation != basics.generation():
            self._generation = basics.generation()
            self._loop = self._reducer.shards()
            if next(self._loop, None) is None:
                raise ValueError(
                    f"there are more workers than shards, {self._settings.shards}, and Keras makes "
                    "no step without a batch"
                )
        for array, one in zip(self._arrays, given):
            array[...] = one
        if next(self._loop, None) is not None:
            return None
        self._loop = None
        return [keras.ops.convert_to_tensor(array.copy()) for array in self._arrays]

    def _make_reducer(self, like: Sequence[np.ndarray[Any, Any]]) -> None:
        call = self._settings.call
        self._arrays = [np.zeros_like(one) for one in like]
        self._reducer = ShardReducer(
            {f"variable.{index}": one for index, one in enumerate(self._arrays)},
            self._settings.shards,
            f"{call.name}.shards",
            call.op,
            call.process_set,
            self._settings.deterministic,
        )


def _on_host(gradient: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(keras.ops.convert_to_numpy(gradient))
    except Exception as error:
        raise RuntimeError(
            "an optimizer with shards does not work in a function that is compiled: "
            "model.compile(run_eagerly=True)"
        ) from error


def scaled(gradient: Any, settings: Settings) -> Any:
    """The gradient of a local variable, of the same weight as those of all ranks."""
    if gradient is None:
        return None
    process_set = settings.call.process_set
    if keras.backend.backend() != "tensorflow":
        size = process_set.size() if settings.scales_local else 1
        return gradient * (settings.factor / size)
    from hvd.tensorflow.gradients import divided
    from hvd.tensorflow.places import size_op

    gradient = divided(gradient, 1.0 / settings.factor)
    return divided(gradient, size_op(number_of(process_set))) if settings.scales_local else gradient


@functools.cache
def reduce_of_backend() -> Reduce:
    """Gives the function for Keras's backend. ImportError: hvd has none for it."""
    backend = keras.backend.backend()
    functions: dict[str, Reduce] = {
        "torch": _as_one_group(_by_torch),
        "jax": _as_one_group(_by_jax),
        "tensorflow": _by_tensorflow,
    }
    if backend not in functions:
        raise ImportError(
            f"hvd.keras works with the backends {', '.join(functions)} of Keras, not with "
            f'"{backend}": KERAS_BACKEND chooses one'
        )
    return functions[backend]
