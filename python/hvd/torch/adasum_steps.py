"""An optimizer's steps, combined by Adasum."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from hvd import basics
from hvd._work import Adasum
from hvd.basics import global_process_set

from .adapter import collectives
from .agreement import agree_on_name, generation_agreed
from .compression import Compressor
from .wrapped_optimizer import WrappedOptimizer


class AdasumSteps(WrappedOptimizer):
    """The part of a DistributedOptimizer that combines what the ranks' own steps have changed."""

    def _distribute(self, names: list[str], compression: type[Compressor]) -> None:
        self._names = names
        self._compression = compression
        self._name = ""
        self._named_in = -1  # the generation in which the ranks agreed on the name

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Any number of passes may come before a step, which uses what they have added up."""

    def _name_in_this_world(self) -> str:
        if self._named_in != basics.generation():
            self._name, told = agree_on_name(self, self._names, global_process_set)
            self._named_in = generation_agreed(told, global_process_set)
        return self._name

    def synchronize(self) -> None:
        """Nothing: the step itself combines."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError: the step cannot be divided."""
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )
        yield

    def step(self, closure: Any = None) -> Any:
        """One step of this rank alone, then all ranks' steps together."""
        parameters = [
            one for group in self.param_groups for one in group["params"] if one.requires_grad
        ]
        before = [one.detach().clone() for one in parameters]
        result = super().step(closure)  # type: ignore[misc]
        with torch.no_grad():
            compression = self._compression
            pairs = [compression.compress(one - old) for one, old in zip(parameters, before)]
            changes = [small for small, _ in pairs]
            name = f"adasum.{self._name_in_this_world()}"
            collectives.grouped_allreduce_(changes, name=name, op=Adasum)
            for one, old, change, (_, context) in zip(parameters, before, changes, pairs):
                one.copy_(old + compression.decompress(change, context))
        self._tell_inner_of_step()
        return result
