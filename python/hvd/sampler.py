"""Which samples of a data set are this rank's, or a shard's, in a job whose world changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from . import basics
from .shards import shards_of


class ElasticSampler:
    """Shares out the samples of an epoch among the ranks, each once, whatever happens to the world.

    A loop over it gives this rank's samples. ``record_batch()`` says after each batch that it was
    processed, on all ranks; a commit keeps that. After a change of the world the samples that are
    left are shared out anew: begin the loop again.

    Args:
        dataset: its length counts.
        shuffle: in an order that depends on the seed and the epoch, the same on all ranks.
        seed: of the shuffling.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch: int = 0
        self.processed_num: int = 0
        self.rank: int = 0
        self.num_replicas: int = 1
        self.remaining_indices: list[int] = []
        self.num_samples: int = 0
        self.total_size: int = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch from its first sample: to be called at the end of each one."""
        if epoch < 0:
            raise ValueError(f"ElasticSampler.set_epoch(): negative epoch {epoch}")
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that all ranks have processed their batch number ``batch_idx``, from 0.

        ``batch_size`` counts the samples of one rank. The last batch may be smaller.
        """
        del batch_idx  # of Horovod's signature; batches are recorded one after the other
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Shares out what is left, among the ranks that there are now."""
        self.num_replicas = basics.size() if basics.is_initialized() else 1
        self.rank = basics.rank() if basics.is_initialized() else 0
        self.remaining_indices = self._order()[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _order(self) -> list[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        return indices

    def state_dict(self) -> dict[str, Any]:
        """The state that must survive: the epoch, and how many of its samples were processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The reverse of ``state_dict()``; shares out what is left."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        # All ranks have equally many: some samples come twice where they cannot be shared evenly.
        while indices and len(indices) < self.total_size:
            indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples


class ShardSampler(ElasticSampler):
    """Shares out the samples of each step among a fixed number of shards, the same in each world.

    A loop over it gives the batches of this rank's shards, step by step, as lists of indices: it is
    a ``batch_sampler`` for PyTorch's DataLoader. ``batch(shard)`` gives one of them. After each
    step ``record_step()`` says on all ranks that it was made; a commit keeps that. After a change
    of the world begin the loop again.

    In the last step of an epoch shards are smaller, and some samples may come twice.

    Args:
        dataset: its length counts.
        batch_size: samples of a shard.
        shards: their number.
        shuffle: in an order that depends on the seed and the epoch, the same on all ranks.
        seed: of the shuffling.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        shards: int,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"a shard has at least one sample, not {batch_size}")
        shards_of(shards, 0, 1)  # raises for a number that cannot be
        self.batch_size = batch_size
        self.shards = shards
        super().__init__(dataset, shuffle, seed)

    def reset(self) -> None:
        """Shares out what is left, among the shards of the ranks that there are now."""
        super().reset()
        self._count_batches()

    def record_step(self) -> None:
        """Notes that all ranks have made a step with the batches of all shards."""
        left = len(self.remaining_indices)
        done = min(left, self._size_of_step(left) * self.shards)
        self.processed_num += done
        del self.remaining_indices[:done]
        self._count_batches()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Raises TypeError: steps are recorded, not batches."""
        raise TypeError("a ShardSampler counts steps: record_step()")

    def is_done(self) -> bool:
        """Whether the epoch has no samples left: ``set_epoch()`` begins the next one."""
        return not self.remaining_indices

    def batch(self, shard: int) -> list[int]:
        """The samples of a shard in this step; none after the last one of an epoch."""
        if not 0 <= shard < self.shards:
            raise ValueError(f"there is no shard {shard} of {self.shards}")
        left = self.remaining_indices
        return self._batch(left, 0, self._size_of_step(len(left)), shard)

    def _own(self) -> range:
        return shards_of(self.shards, self.rank, self.num_replicas)

    def _count_batches(self) -> None:
        steps = -(-len(self.remaining_indices) // (self.batch_size * self.shards))
        self.num_samples = steps * len(self._own())
        self.total_size = steps * self.shards

    def _size_of_step(self, left: int) -> int:
        """How many samples a shard gets in the next step, if so many are left."""
        return min(self.batch_size, -(-left // self.shards))

    @staticmethod
    def _batch(left: list[int], begin: int, size: int, shard: int) -> list[int]:
        first = begin + shard * size
        # Past the end come samples of the begin of this step: those are the same in each world.
        return [
            left[i] if i < len(left) else left[begin + (i - len(left)) % (len(left) - begin)]
            for i in range(first, first + size)
        ]

    def __iter__(self) -> Iterator[Any]:
        left = list(self.remaining_indices)  # those of the begin, while steps are recorded
        begin = 0
        while begin < len(left):
            size = self._size_of_step(len(left) - begin)
            for shard in self._own():
                yield self._batch(left, begin, size, shard)
            begin += size * self.shards
