"""Which samples of a data set are this rank's, in a job whose world changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from . import basics


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
