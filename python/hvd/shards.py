"""Shards: parts of the batch of a step, as many in each world. docs/shards.md says what for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core, basics
from ._work import Average, Sum, Tensor
from .arrays import _Arrays, grouped_allreduce_
from .basics import ProcessSet, global_process_set, number_of
from .errors import InvalidArgumentError

_SLICE_MS = 50  # for which a thread waits without looking for signals


def shards_of(shards: int, rank: int | None = None, size: int | None = None) -> range:
    """The shards of a rank, which are this rank's in this world if none is named.

    No rank has more than ceil(shards / size) of them, and one may have none. Raises
    InvalidArgumentError of a number of shards, or of a rank, that cannot be.
    """
    if rank is None or size is None:
        rank, size = basics.rank(), basics.size()
    return range(*_core.shards_of(shards, rank, size))


class ShardRandom:
    """A stream of random numbers of one shard in one step, the same on whichever rank.

    None of its state has to be committed: the numbers are a function of seed, shard and step, and
    those of ``hvd::ShardRandom`` in C++. For dropout and others that draw from the generator of a
    framework: ``torch.manual_seed(hvd.ShardRandom(7, shard, step).seed())``.
    """

    def __init__(self, seed: int, shard: int, step: int) -> None:
        self._place = seed, shard, step
        self._drawn = 0

    def integers(self, count: int) -> NDArray[np.uint32]:
        """The next numbers of 32 bits."""
        drawn = _core.shard_random(*self._place, self._drawn, count)
        self._drawn += count
        return np.frombuffer(drawn, np.uint32)

    def uniform(self, count: int) -> NDArray[np.float32]:
        """The next numbers from 0 to below 1, in steps of 2**-24."""
        return (self.integers(count) >> 8).astype(np.float32) * np.float32(2**-24)

    def seed(self) -> int:
        """The next number of 63 bits, as generators of frameworks take it."""
        low, high = self.integers(2).tolist()
        return (high << 32 | low) >> 1


class ShardLoop:
    """A loop over the shards of this rank, at whose end something comes that all ranks do together.

    A loop that an exception or a ``break`` has ended does not count: the next one begins the step
    anew.
    """

    def __init__(self) -> None:
        self.is_in_step = False  # a loop has begun and has not come to its end
        self.samples: Sequence[int] = ()  # of the shard

    def over(
        self,
        own: Sequence[int],
        ready: Callable[[int], None],
        synchronize: Callable[[], None],
    ) -> Iterator[int]:
        """Gives each shard, says that it is ready, and synchronizes after the last one."""
        self.is_in_step = True
        for shard in own:
            self.samples = ()
            yield shard
            ready(shard)
        synchronize()
        self.is_in_step = False


class TreeSum:
    """The sum along a tree over the shards, for adapters: of tensors that ``tuples`` describe.

    Args:
        tuples: by their names; the addresses do not count.
    """

    def __init__(
        self, tuples: Mapping[str, Tensor], shards: int, name: str, op: int, process_set: ProcessSet
    ) -> None:
        self._shards = shards
        self._reducer = _core.ShardReducer(name, shards, op, number_of(process_set))
        for key, one in tuples.items():
            self._reducer.add(key, one)

    def begin(self, addresses: list[int], step: int | None) -> Sequence[int]:
        """Begins a step, and gives the shards that this rank is to compute.

        A step before it that a signal has cut off comes to its end first. With a number, a step
        that another world repeats computes no shard whose sum is still there.
        """
        while self._reducer.in_flight() and not self._reducer.synchronize(_SLICE_MS, addresses):
            pass
        if step is not None:
            return self._reducer.begin(step, self._shards)
        self._reducer.reset()
        return range(*self._reducer.own())

    def ready(self, shard: int, addresses: list[int], samples: Sequence[int] = ()) -> None:
        """Adds the tensors, which lie there, as those of a shard, and of these samples."""
        self._reducer.ready(shard, addresses, [int(one) for one in samples])

    def synchronize(self, addresses: list[int]) -> None:
        """Blocks until the sum of all shards lies there."""
        while not self._reducer.synchronize(_SLICE_MS, addresses):
            pass


class ShardReducer:
    """Makes arrays the average over all shards, on all ranks.

        reducer = hvd.ShardReducer({"weight": gradient}, shards=16)
        for shard in reducer.shards():
            gradient[:] = gradient_of(batch_of(shard))
        ...                                  # gradient is the average over all 16

    It serves in all worlds of an elastic job. The frameworks have reducers of their own.

    Args:
        gradients: arrays of NumPy, which are changed in place; the same names, shapes and types on
            all ranks, in the same order.
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
        gradients: Mapping[str, NDArray[Any]],
        shards: int,
        name: str = "shards",
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        deterministic: bool = False,
    ) -> None:
        if op not in (Average, Sum):
            raise InvalidArgumentError("ShardReducer: op is Average or Sum")
        shards_of(shards, 0, 1)  # raises for a number that cannot be
        self._arrays = [_Arrays().change(one) for one in gradients.values()]
        self._shards = shards
        self._name = name
        self._divisor = shards if op == Average else 1
        self._process_set = process_set
        self._loop = ShardLoop()
        self._sums: list[NDArray[Any]] = []  # of own shards, if they are not added along the tree
        self._tree: TreeSum | None = None
        if deterministic:
            tuples = dict(zip(gradients, map(_Arrays().describe, self._arrays)))
            self._tree = TreeSum(tuples, shards, name, op, process_set)

    def shards(self, step: int | None = None) -> Iterator[int]:
        """Loops over the shards of this rank, after which the arrays are those of all shards.

        A rank without shards takes part at the end of the loop alone. Raises HorovodInternalError
        if a member is gone.

        Args:
            step: the number of the step, the same on all ranks. With it, a step with a
                deterministic sum that is repeated after a loss loops only over the shards that
                were lost. It needs a commit after each step, and a reducer that outlives the
                worlds.
        """
        own = shards_of(self._shards, self._process_set.rank(), self._process_set.size())
        if self._tree is None:
            self._sums = []
            yield from self._loop.over(own, self._add, self._reduce_sums)
            return
        tree, addresses = self._tree, [one.ctypes.data for one in self._arrays]
        missing = tree.begin(addresses, step)
        yield from self._loop.over(
            missing,
            lambda shard: tree.ready(shard, addresses, self._loop.samples),
            lambda: tree.synchronize(addresses),
        )

    def record_samples(self, samples: Sequence[int]) -> None:
        """In the loop: the shard has these samples, for the ledger of a deterministic sum."""
        self._loop.samples = samples

    def is_in_step(self) -> bool:
        """Whether a loop has begun, and has not come to its end."""
        return self._loop.is_in_step

    def _add(self, shard: int) -> None:
        del shard
        if not self._sums:
            self._sums = [one.copy() for one in self._arrays]
            return
        for total, one in zip(self._sums, self._arrays):
            total += one

    def _reduce_sums(self) -> None:
        sums = self._sums or [np.zeros_like(one) for one in self._arrays]
        grouped_allreduce_(
            sums,
            name=self._name,
            op=Sum,
            postscale_factor=1.0 / self._divisor,
            process_set=self._process_set,
        )
        for one, total in zip(self._arrays, sums):
            one[...] = total
