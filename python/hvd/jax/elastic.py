"""Training with JAX that goes on when workers come, go and die.

    import hvd.jax as hvd

    hvd.init()
    state = hvd.elastic.JaxState(params=params, step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < 1000:
            state.params = step(state.params, next_batch())
            state.step += 1
            state.commit()

    train(state)

A compiled function serves in every world: what it says does not depend on the number of ranks.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

import hvd.elastic
from hvd import _core
from hvd.elastic import ElasticSampler, ObjectState, State

__all__ = ["ElasticSampler", "JaxState", "ObjectState", "State", "run"]

_Result = TypeVar("_Result")


def _rebuild(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    # A copy: the state's memory does not stay.
    return jnp.array(np.frombuffer(buffer, np.uint8).view(dtype).reshape(shape))


def _reduce_array(value: Any) -> Any:
    """Leaves the memory of arrays where it is."""
    if not isinstance(value, jax.Array) or jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return NotImplemented
    array = np.ascontiguousarray(np.asarray(value))
    raw: Any = array.reshape(-1).view(np.uint8)
    return _rebuild, (pickle.PickleBuffer(raw), array.dtype, value.shape)


class JaxState(ObjectState):
    """Pytrees of JAX's arrays and other objects that survive, as attributes.

    Args:
        kwargs: the attributes and their first values, for example ``params``, ``opt_state`` and
            ``step``. Samplers (``ElasticSampler``) and others with a ``state_dict()`` stay the
            objects that they are.
    """

    _overrides = staticmethod(_reduce_array)


def raises_failures_of_hvd(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Makes a failure of hvd what it was, where JAX has made an exception of its own of it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> _Result:
        with contextlib.suppress(Exception):
            _core.raise_xla_failure()  # of a call before, which the program has dealt with
        try:
            # What is still being computed may fail, too.
            return jax.block_until_ready(function(*args, **kwargs))
        except RuntimeError as error:
            try:
                _core.raise_xla_failure()
            except Exception as failure:
                raise failure from error
            raise

    return call


def run(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``hvd.elastic.run`` for functions that call hvd under ``jit``."""
    return hvd.elastic.run(raises_failures_of_hvd(function))
