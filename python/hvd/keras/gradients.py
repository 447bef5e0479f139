"""The reduction of gradients by the calls of the framework that Keras runs on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from hvd._collectives import ReduceArguments

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"hvd.keras is for Keras 3, and this is Keras {keras.__version__}")

Reduce = Callable[[Sequence[Any], ReduceArguments], list[Any]]


def _by_torch(gradients: Sequence[Any], call: ReduceArguments) -> list[Any]:
    from hvd.torch.adapter import collectives

    # Keras throws the gradients away after the step, so they are reduced where they lie.
    return collectives.start_allreduce_in_place(gradients, call, grouped=True).wait()


def _by_jax(gradients: Sequence[Any], call: ReduceArguments) -> list[Any]:
    from hvd.jax import ops

    return ops.reduce_tree(list(gradients), call)


def _by_tensorflow(gradients: Sequence[Any], call: ReduceArguments) -> list[Any]:
    from hvd.tensorflow.gradients import Reduction

    return Reduction(call).reduce(gradients)


@functools.cache
def reduce_of_backend() -> Reduce:
    """Gives the function for Keras's backend. ImportError: hvd has none for it."""
    backend = keras.backend.backend()
    functions: dict[str, Reduce] = {
        "torch": _by_torch,
        "jax": _by_jax,
        "tensorflow": _by_tensorflow,
    }
    if backend not in functions:
        raise ImportError(
            f"hvd.keras works with the backends {', '.join(functions)} of Keras, not with "
            f'"{backend}": KERAS_BACKEND chooses one'
        )
    return functions[backend]
