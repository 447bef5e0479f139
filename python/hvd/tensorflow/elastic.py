"""Training with TensorFlow that goes on when workers come, go and die.

    import hvd.tensorflow as hvd

    hvd.init()
    state = hvd.elastic.TensorFlowState(model.variables, step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < 1000:
            training_step(next_batch())
            state.step += 1
            state.commit()

    train(state)

A traced function serves in every world, if it asks ``hvd.size_op()`` for what depends on it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tensorflow as tf

import hvd.elastic
from hvd.elastic import ElasticSampler, ObjectState, State

from .kernels import raising_failures_of_hvd

__all__ = [
    "ElasticSampler",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]

_Result = TypeVar("_Result")


def _packable(variable: Any) -> Any:
    """Its value as an array or number of NumPy."""
    tensor = tf.convert_to_tensor(variable)
    # pickle does not find the type that TensorFlow 2.13 has for it.
    return (tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor).numpy()


def _unpacked(value: Any, dtype: tf.DType) -> Any:
    return tf.bitcast(tf.constant(value, tf.uint16), dtype) if dtype == tf.bfloat16 else value


class TensorFlowState(ObjectState):
    """Variables and other objects that survive, as attributes.

    Args:
        variables: tf.Variable, in the same order on all ranks: those of a model and of its
            optimizer, for example.
        session: of Horovod's signature, and None.
        kwargs: the other attributes and their first values, for example ``step``, and samplers
            (``ElasticSampler``).
    """

    def __init__(self, variables: Iterable[Any] = (), session: Any = None, **kwargs: Any) -> None:
        if session is not None:
            raise ValueError("hvd.tensorflow has no states for sessions of TensorFlow 1")
        super().__init__(**kwargs)
        self.variables = list(variables)

    def _objects(self) -> Any:
        return super()._objects(), [_packable(one) for one in self.variables]

    def _set_objects(self, objects: Any) -> None:
        others, values = objects
        if len(values) != len(self.variables):
            raise ValueError(
                f"there are {len(self.variables)} variables here, and {len(values)} values: all "
                "workers must make the same ones"
            )
        for variable, value in zip(self.variables, values):
            variable.assign(_unpacked(value, tf.as_dtype(variable.dtype)))
        super()._set_objects(others)


def TensorFlowKerasState(model: Any, optimizer: Any = None, **kwargs: Any) -> Any:
    """``hvd.keras.elastic.KerasState``: a model, its optimizer and other objects that survive.

    Raises:
        ImportError: Keras is older than 3. TensorFlowState takes the variables there.
    """
    from hvd.keras.elastic import KerasState

    return KerasState(model, optimizer, **kwargs)


def raises_failures_of_hvd(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Makes a failure of hvd what it was, where TensorFlow has made an error of its own of it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> _Result:
        with raising_failures_of_hvd():
            return function(*args, **kwargs)

    return call


def run(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``hvd.elastic.run`` for functions that call hvd under ``tf.function``."""
    return hvd.elastic.run(raises_failures_of_hvd(function))
