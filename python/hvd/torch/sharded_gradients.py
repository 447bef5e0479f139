"""Optimizers whose steps go over shards, as many in each world. docs/shards.md says what for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from hvd._work import HOST, Average
from hvd.basics import ProcessSet
from hvd.shards import ShardLoop, TreeSum, shards_of

from .gradient_step import Settings
from .reduced_gradients import ReducedGradients
from .tensors import TYPES
from .wrapped_optimizer import WrappedOptimizer


class _HostSum:
    """A sum along a tree over the shards, of tensors that may lie on a GPU.

    They are copied to the memory of the host where they are not there.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, torch.Tensor]],
        shards: int,
        op: int,
        process_set: ProcessSet,
    ) -> None:
        self.like = [one.detach() for _, one in named]
        tuples = {
            name: (0, tuple(one.shape), TYPES[one.dtype], HOST)
            for (name, _), one in zip(named, self.like)
        }
        # Sums of two optimizers are never under way at once, so they may have one name.
        digest = hashlib.sha256("\0".join(tuples).encode()).hexdigest()[:12]
        self._tree = TreeSum(tuples, shards, f"shards.{digest}", op, process_set)
        largest = max((one.numel() * one.element_size() for one in self.like), default=0)
        self._zeros = torch.zeros(largest, dtype=torch.uint8)
        self._results: list[torch.Tensor] = []

    def begin(self, step: int | None = None) -> Sequence[int]:
        """Begins a step, and gives the shards that this rank is to compute."""
        # They stay until another step begins, in case that a signal cuts this one off.
        results = [torch.empty(one.shape, dtype=one.dtype, device="cpu") for one in self.like]
        missing = self._tree.begin([one.data_ptr() for one in results], step)
        self._results = results
        return missing

    def ready(
        self, shard: int, tensors: Sequence[torch.Tensor | None], samples: Sequence[int] = ()
    ) -> None:
        """These are of a shard; None stands for zeros."""
        given = [self._on_host(*pair) for pair in zip(tensors, self.like)]
        self._tree.ready(shard, [one.data_ptr() for one in given], samples)

    def synchronize(self) -> list[torch.Tensor]:
        """Blocks until the sums of all shards are there, on the devices of the tensors."""
        self._tree.synchronize([one.data_ptr() for one in self._results])
        return [one.to(like.device) for one, like in zip(self._results, self.like)]

    def _on_host(self, tensor: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        if tensor is None:
            return self._zeros
        dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
        if dense.shape != like.shape:
            raise ValueError(f"a tensor of a shard has the shape {tuple(dense.shape)}")
        return dense.to(device="cpu", dtype=like.dtype).contiguous()


class _Buffers:
    """Buffers of a model, such as running means, in a step over shards.

    Each shard begins with those of the begin of the step, and what shards have changed is averaged.
    """

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.named = [
            (f"buffer {name}", one)
            for name, one in named
            if one.dtype in TYPES and one.dtype != torch.bool
        ]
        self._begin: list[torch.Tensor] = []

    @torch.no_grad()
    def begin(self) -> None:
        self._begin = [one.detach().clone() for _, one in self.named]

    @torch.no_grad()
    def changes(self) -> list[torch.Tensor]:
        """What a shard has changed, and takes it back."""
        changes = [one - begin for (_, one), begin in zip(self.named, self._begin)]
        for (_, one), begin in zip(self.named, self._begin):
            one.copy_(begin)
        return changes

    @torch.no_grad()
    def change(self, changes: Sequence[torch.Tensor]) -> None:
        for (_, one), change in zip(self.named, changes):
            one.add_(change)


class _Steps:
    """What optimizers over shards have."""

    param_groups: list[dict[str, Any]]
    _shard_count: int
    _shard_set: ProcessSet
    _shard_loop: ShardLoop
    _buffers: _Buffers

    def _share_out(
        self,
        shards: int,
        process_set: ProcessSet,
        named_buffers: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        self._shard_count = shards
        self._shard_set = process_set
        self._shard_loop = ShardLoop()
        self._buffers = _Buffers(named_buffers)

    def shards(self, step: int | None = None) -> Iterator[int]:
        """Loops over the shards of this rank: one step, for ``step()``.

        In the loop comes what a step of one process does with its batch, up to ``backward()``, for
        the samples of the shard. After it gradients are the average over all shards, on all ranks.
        A parameter that has a gradient in no shard has none. Gradients from before the loop are
        thrown away. A loop that was left before its end does not count.

        Args:
            step: the number of the step, the same on all ranks. With it, a step of a deterministic
                optimizer that is repeated after a loss loops only over the shards that were lost,
                and not over those whose gradients other workers, or this one, still have. It needs
                a commit after each step, and an optimizer that outlives the worlds.
        """
        missing = self._begin_shards(step)
        self._clear_gradients()
        self._buffers.begin()
        yield from self._shard_loop.over(missing, self._end_shard, self._end_shards)

    def record_samples(self, samples: Sequence[int]) -> None:
        """In the loop: the shard has these samples, for the ledger of a deterministic optimizer."""
        self._shard_loop.samples = samples

    def _clear_gradients(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _check_loop(self) -> None:
        if self._shard_loop.is_in_step:
            raise RuntimeError(
                "step() comes after a loop over shards(), and the last one was left before its end"
            )

    def _begin_shards(self, step: int | None) -> Sequence[int]:
        raise NotImplementedError

    def _end_shard(self, shard: int) -> None:
        raise NotImplementedError

    def _end_shards(self) -> None:
        raise NotImplementedError


class ShardedGradients(_Steps, ReducedGradients):
    """A rank adds up the gradients of its shards, and then all ranks do.

    They travel while the last backward pass goes on, as those of an optimizer without shards.
    """

    _buffer_sum: _HostSum | None

    def _distribute_shards(
        self,
        named: dict[torch.nn.Parameter, str],
        settings: Settings,
        passes: int,
        shards: int,
        named_buffers: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        self._distribute(named, settings, passes)
        self._share_out(shards, settings.process_set, named_buffers)
        self._passes_of_shard = passes
        self._passes_before = 0  # of the loop
        self._shards_done = 0
        self._buffer_sum = None
        if self._buffers.named:
            process_set = settings.process_set
            self._buffer_sum = _HostSum(self._buffers.named, shards, Average, process_set)

    def _begin_shards(self, step: int | None) -> Sequence[int]:
        del step  # a rank's sum is that of all its shards
        own = shards_of(self._shard_count, self._shard_set.rank(), self._shard_set.size())
        exchange = self._exchange
        exchange.forget_step()
        exchange.passes = max(1, self._passes_of_shard * len(own))
        self._passes_before, self._shards_done = exchange.passes_made, 0
        if self._buffer_sum is not None:
            self._buffer_sum.begin()
        return own

    def _end_shard(self, shard: int) -> None:
        self._shards_done += 1
        made = self._exchange.passes_made - self._passes_before
        if made > self._shards_done * self._passes_of_shard:
            raise RuntimeError(
                f"shard {shard} had more backward passes than {self._passes_of_shard}, which is "
                "the backward_passes_per_step of the optimizer"
            )
        if self._buffer_sum is not None:
            self._buffer_sum.ready(shard, self._buffers.changes())

    def _end_shards(self) -> None:
        self._exchange.synchronize()
        if self._buffer_sum is not None:
            self._buffers.change(self._buffer_sum.synchronize())

    def set_backward_passes_per_step(self, passes: int) -> None:
        """So many backward passes each shard has."""
        super().set_backward_passes_per_step(passes)
        self._passes_of_shard = passes

    def step(self, closure: Any = None) -> Any:
        """One step with the gradients of all shards."""
        self._check_loop()
        return super().step(closure)


class TreeGradients(_Steps, WrappedOptimizer):
    """Gradients are added along a tree over the shards, in the memory of the host."""

    _sum: _HostSum | None

    def _distribute_shards(
        self,
        named: dict[torch.nn.Parameter, str],
        settings: Settings,
        shards: int,
        named_buffers: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        self._share_out(shards, settings.process_set, named_buffers)
        self._names = named
        self._op = settings.op
        self._sum = None
        self._asking: list[torch.nn.Parameter] = []  # for gradients, in this step

    def _begin_shards(self, step: int | None) -> Sequence[int]:
        asking = [
            one for group in self.param_groups for one in group["params"] if one.requires_grad
        ]
        is_same = [id(one) for one in asking] == [id(one) for one in self._asking]
        if self._sum is None or not is_same:
            names = [self._names.get(one, f"noname.{index}") for index, one in enumerate(asking)]
            self._asking = asking
            self._sum = _HostSum(
                [
                    *zip(names, asking),
                    ("<present>", torch.zeros(len(asking))),
                    *self._buffers.named,
                ],
                self._shard_count,
                self._op,
                self._shard_set,
            )
        return self._sum.begin(step)

    def _end_shard(self, shard: int) -> None:
        assert self._sum is not None
        gradients = [one.grad for one in self._asking]
        present = torch.tensor([float(one is not None) for one in gradients])
        tensors = [*gradients, present, *self._buffers.changes()]
        self._sum.ready(shard, tensors, self._shard_loop.samples)
        self._clear_gradients()

    def _end_shards(self) -> None:
        assert self._sum is not None
        results = self._sum.synchronize()
        count = len(self._asking)
        present = results[count].tolist()
        for parameter, gradient, is_there in zip(self._asking, results, present):
            if is_there:
                parameter.grad = gradient
        changes = results[count + 1 :]
        if self._op != Average:
            shards = self._shard_count
            changes = [
                torch.div(one, shards, rounding_mode=None if one.is_floating_point() else "trunc")
                for one in changes
            ]
        self._buffers.change(changes)

    def step(self, closure: Any = None) -> Any:
        """One step with the gradients of all shards."""
        self._check_loop()
        result = super().step(closure)  # type: ignore[misc]
        self._tell_inner_of_step()
        return result
