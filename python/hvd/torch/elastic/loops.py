"""Training by a framework's own loop that goes on when workers come, go and die.

For Transformers, Accelerate and Lightning, whose modules of hvd have this one as ``elastic``. The
process group of ``torch.distributed`` and what the framework makes of it belong to one world, so
they are made inside the function that ``run`` decorates.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator, Sized
from itertools import cycle, islice
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

import hvd.elastic
from hvd import basics
from hvd.elastic import ObjectState, State

from .sampler import ElasticSampler
from .state import TorchState

__all__ = [
    "ElasticSampler",
    "LoopSampler",
    "LoopState",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]

_Result = TypeVar("_Result")


class LoopSampler(ElasticSampler):
    """``ElasticSampler`` for a loop that counts the batches of an epoch itself.

    Its length is that of a whole epoch, also where a part of it is done already. An epoch ends with
    ``next_epoch()``. Frameworks call ``set_epoch()`` with a count of their own: it does nothing.

    Args:
        dataset, shuffle, seed: as for ``ElasticSampler``.
        deals: whether it gives the samples of this rank, and not those of all ranks, which the
            framework deals out.
    """

    def __init__(
        self, dataset: Sized, shuffle: bool = True, seed: int = 0, deals: bool = True
    ) -> None:
        self._deals = deals
        self.replayed = 0  # samples in front of those that are left, which the loop passes over
        super().__init__(dataset, shuffle, seed)

    def reset(self) -> None:
        super().reset()
        if not self._deals:
            self.num_replicas, self.rank = 1, 0
        self.num_samples = -(-len(self.dataset) // self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Does nothing."""

    def next_epoch(self) -> None:
        """Begins the next epoch from its first sample."""
        self.replayed = 0
        super().set_epoch(self.epoch + 1)

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        super().record_batch(batch_idx, batch_size)
        self.processed_num = min(self.processed_num, len(self.dataset))

    def batches_done(self, batch_size: int, drop_last: bool = False) -> int:
        """How many batches of all ranks, of ``batch_size`` samples, come before those left."""

        def batches(samples: int) -> int:
            return samples // batch_size if drop_last else -(-samples // batch_size)

        size = len(self.dataset)
        return batches(size) - batches(size - self.processed_num)

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        given = list(islice(cycle(order[: self.processed_num]), self.replayed))
        given += order[self.processed_num :]
        # The ranks have equally many. The samples that come twice are the same in each world.
        given += islice(cycle(order), -len(given) % self.num_replicas)
        return iter(given[self.rank :: self.num_replicas])


class LoopState(TorchState):
    """A model, and all that a framework's loop knows when it begins a step. It is for one training.

    Random numbers (of torch, NumPy and Python) begin anew in each step, from the seed, the number
    of the step and the rank, so that a newcomer draws those of the rank that it takes over.

    Args:
        model: on the device where it is trained.
        commit_every: a commit comes with each such step. Others ask whether the world changes.
        kwargs: as for ``TorchState``.
    """

    def __init__(self, model: torch.nn.Module, commit_every: int = 1, **kwargs: Any) -> None:
        if commit_every < 1:
            raise ValueError(f"commit_every is at least 1, not {commit_every}")
        super().__init__(model=model, loop={}, seed=torch.initial_seed(), **kwargs)
        self._commit_every = commit_every
        self._read_loop: Callable[[], dict[str, Any]] | None = None

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        assert self.model is not None
        return next(self.model.parameters()).device

    def follow(self, read_loop: Callable[[], dict[str, Any]]) -> None:
        """For adapters of frameworks: what gives ``loop`` in this world."""
        self._read_loop = read_loop

    def _objects(self) -> Any:
        if self._read_loop is not None:
            self.loop = {**self._read_loop(), "size": basics.size()}
        return super()._objects()

    def has_other_size(self) -> bool:
        """Whether the world of the last commit had another number of workers."""
        return bool(self.loop) and self.loop["size"] != basics.size()

    def begin_step(self, step: int) -> None:
        """For adapters of frameworks: before each step of an optimizer.

        Raises what ``commit()`` raises.
        """
        if step % self._commit_every == 0:
            self.commit()
        else:
            self.check_host_updates()
        numbers = random.Random(f"{self.seed} {step} {basics.rank()}")
        torch.manual_seed(numbers.getrandbits(63))
        np.random.seed(numbers.getrandbits(32))
        random.seed(numbers.getrandbits(63))


def _begin_accelerate(device: torch.device | None) -> None:
    """Lets Accelerate, if the program uses it, find out anew where it is."""
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is None:
        return
    accelerate.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.GradientState._reset_state()
    if device is not None:
        # It would move a model from "cpu" to "cpu:0", which is other memory.
        os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
        # On CPUs it would otherwise take each worker for a job of its own.
        os.environ["ACCELERATE_USE_CPU"] = str(device.type == "cpu").lower()


def check_is_whole(ranks: int) -> None:
    """For adapters of frameworks. Raises RuntimeError unless the framework knows of all workers."""
    if ranks != basics.size():
        raise RuntimeError(
            f"the framework trains with {ranks} workers, and there are {basics.size()}: is what it "
            "trains with made in the function that hvd.elastic.run of this module decorates, and "
            "use_cpu=True set where the model is on a CPU?"
        )


def _join_world() -> None:
    # Hooks on the parameters of what a failed call has wrapped, which nothing refers to any more.
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()
    # Frameworks read them. A worker was started with those of the first world.
    places = {
        "RANK": basics.rank(),
        "WORLD_SIZE": basics.size(),
        "LOCAL_RANK": basics.local_rank(),
        "LOCAL_WORLD_SIZE": basics.local_size(),
    }
    os.environ.update({name: str(place) for name, place in places.items()})
    dist.init_process_group("hvd")


def run(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``hvd.elastic.run``, with a process group of ``torch.distributed`` in each world.

    Its backend is ``"hvd"``. The group stays when the function has returned.
    """

    @functools.wraps(function)
    def in_world(state: State, *args: Any, **kwargs: Any) -> _Result:
        _join_world()
        _begin_accelerate(state.device if isinstance(state, LoopState) else None)
        try:
            return function(state, *args, **kwargs)
        finally:
            if isinstance(state, LoopState):
                state._read_loop = None

    return hvd.elastic.run(in_world)
