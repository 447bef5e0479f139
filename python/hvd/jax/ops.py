"""Collectives on JAX's arrays; those in traced functions are in traced.py.

An array that hvd reads is not copied on CPUs. Results are new arrays in memory of hvd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hvd._collectives import Collectives, ReduceArguments, reduce_arguments
from hvd.arrays import _Arrays
from hvd.basics import ProcessSet, global_process_set


def _is_traced(value: Any) -> bool:
    """Whether it stands for an array in a function that is traced."""
    return isinstance(value, jax.core.Tracer)


class _JaxArrays(_Arrays):
    """JAX's arrays, which hvd reads through NumPy's."""

    def read(self, given: Any) -> np.ndarray[Any, Any]:
        if _is_traced(given):
            raise TypeError(
                "an array is needed, not one that JAX traces: of hvd's collectives only "
                "allreduce() may be in a function under jit, grad or vmap"
            )
        # JAX decides on the type of what is no array of its own yet.
        return super().read(np.asarray(jnp.asarray(given)))

    def give(self, result: np.ndarray[Any, Any]) -> jax.Array:
        return jnp.asarray(result)


_collectives: Collectives[Any] = Collectives(_JaxArrays())

allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
allreduce_async = _collectives.allreduce_async
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
broadcast = _collectives.broadcast
broadcast_async = _collectives.broadcast_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
send = _collectives.send
send_async = _collectives.send_async


def reduce_tree(tree: Any, call: ReduceArguments) -> Any:
    """Reduces a pytree as one group, traced or not."""
    leaves, structure = jax.tree.flatten(tree)
    if any(_is_traced(leaf) for leaf in leaves):
        # What it needs of JAX takes half of the time of an import of this package.
        from .traced import allreduce_leaves

        reduced = allreduce_leaves(leaves, call)
    else:
        reduced = _collectives.start_allreduce(leaves, call, grouped=True).wait()
    return jax.tree.unflatten(structure, reduced)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> Any:
    """Reduces a pytree of arrays over all ranks, as one group, and gives every rank the result.

    Under ``jit``, ``grad`` and ``vmap`` it can be differentiated, if it is a sum or an average: the
    gradients are reduced in the same way. All ranks must execute the same traced functions in the
    same order.

    Args:
        tensor: an array or a pytree of arrays, of the same structure, shapes and types on all
            ranks.
        average: the older form of ``op``: True for Average, False for Sum.
        name: the same on all ranks; None: by the order of the calls, or in traced functions by
            what they are.
        op: Average (the default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: elements are multiplied by them before and after.
        process_set: the ranks that take part.
        compression: Compression.none, .fp16 or .bf16: the type in which elements travel.

    Raises:
        InvalidArgumentError: an argument of this rank is wrong.
        DisagreementError: those of the ranks do not fit together.
        HorovodInternalError: a member is gone. In traced functions JAX makes another exception of
            these, which ``hvd.jax.elastic.run`` knows.
    """
    call = reduce_arguments(
        average, name, op, prescale_factor, postscale_factor, process_set, compression
    )
    return reduce_tree(tensor, call)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: int = 0,
) -> list[jax.Array]:
    """``allreduce()`` of a list of arrays."""
    return allreduce(
        list(tensors),
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        compression,
    )


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Gives every rank the root's pytree, as new arrays.

    Args:
        params: of the same structure, shapes and types on all ranks.
        root_rank: a rank of the world, also with a process set.
    """
    leaves, structure = jax.tree.flatten(params)
    values = _collectives.broadcast_list(leaves, root_rank, "parameters", process_set)
    return jax.tree.unflatten(structure, values)
