"""The reduction of gradients by the calls of the framework that Keras runs on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras

from hvd._collectives import ReduceArguments
from hvd.basics import number_of
from hvd.compression import compressed

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"hvd.keras is for Keras 3, and this is Keras {keras.__version__}")


class Settings(NamedTuple):
    """How an optimizer reduces its gradients: the arguments of ``DistributedOptimizer()``."""

    call: ReduceArguments
    sparse_as_dense: bool
    groups: Any
    factor: float  # of each batch of a step
    scales_local: bool


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
