"""Pytrees that become those of all shards. docs/shards.md says what shards are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hvd import shards as _shards
from hvd._work import Average
from hvd.basics import ProcessSet, global_process_set


class ShardReducer:
    """Makes a pytree, such as gradients, the average over all shards, on all ranks.

        reducer = hvd.ShardReducer(like=params, shards=16)
        for shard in reducer.shards():
            reducer.add(gradient(params, batch_of(shard)))   # which may be compiled
        gradients = reducer.result()

    The sum is made outside of compiled functions, in the memory of the host. It serves in all
    worlds of an elastic job.

    Args:
        like: a pytree of arrays of the same structure, shapes and types.
        shards: their number, the same in each world.
        name: of the collectives: two reducers of one program need two.
        op: Average or Sum.
        process_set: the ranks that have the shards.
        deterministic: the result has the same bits in each world: shards are added along a tree
            that only their number determines. Else a rank adds up its own, and then all ranks do.

    Raises:
        InvalidArgumentError: an argument is wrong.
    """

    def __init__(
        self,
        like: Any,
        shards: int,
        name: str = "jax.shards",
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        deterministic: bool = False,
    ) -> None:
        leaves, self._structure = jax.tree.flatten(like)
        self._arrays = [np.zeros(np.shape(one), jnp.asarray(one).dtype) for one in leaves]
        named = {f"leaf.{index}": one for index, one in enumerate(self._arrays)}
        self._reducer = _shards.ShardReducer(named, shards, name, op, process_set, deterministic)

    def shards(self, step: int | None = None) -> Iterator[int]:
        """Loops over the shards of this rank, after which there is a ``result()``.

        A shard to which nothing is added counts as zeros. A loop that was left before its end does
        not count. Raises HorovodInternalError if a member is gone.

        Args:
            step: its number, for ``hvd.ShardReducer.shards()``.
        """
        for shard in self._reducer.shards(step):
            for one in self._arrays:
                one[...] = 0
            yield shard

    def record_samples(self, samples: Sequence[int]) -> None:
        """In the loop: the shard has these samples, for the ledger of a deterministic sum."""
        self._reducer.record_samples(samples)

    def add(self, tree: Any) -> None:
        """Adds to what the shard has so far. Raises ValueError of another structure or shape."""
        leaves, structure = jax.tree.flatten(tree)
        if structure != self._structure:
            raise ValueError(
                f"the pytree is {structure}, and that of the reducer {self._structure}"
            )
        for total, leaf in zip(self._arrays, leaves):
            if np.shape(leaf) != total.shape:
                raise ValueError(f"a leaf has the shape {np.shape(leaf)}, and not {total.shape}")
            total += np.asarray(leaf)

    def result(self) -> Any:
        """The pytree of all shards, after the loop. Raises RuntimeError before its end."""
        if self._reducer.is_in_step():
            raise RuntimeError("result() comes after a loop over shards(), at its end")
        return jax.tree.unflatten(self._structure, [jnp.array(one) for one in self._arrays])
