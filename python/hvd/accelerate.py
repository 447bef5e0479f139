# ruff: noqa: D102 - these methods are those of Accelerate
"""Accelerate in a loop of the program that goes on when workers come, go and die.

import hvd.accelerate as hvd

hvd.init()
sampler = hvd.elastic.LoopSampler(data)
state = hvd.elastic.LoopState(model, optimizer=optimizer, sampler=sampler, step=0)

@hvd.elastic.run
def train(state):
    accelerator = hvd.Accelerator()
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    parallel, stepper, loader = accelerator.prepare(model, optimizer, loader)
    while sampler.epoch < 10:
        for batch in loader:
            state.begin_step(state.step)
            ...
            sampler.record_batch(0, 8)
            state.step += 1
        sampler.next_epoch()

train(state)
"""

from __future__ import annotations

from typing import Any

import accelerate
from accelerate.data_loader import prepare_data_loader

from hvd.torch.elastic import loop_names
from hvd.torch.elastic import loops as elastic
from hvd.torch.elastic.loop_names import *  # noqa: F403

__all__ = [
    "Accelerator",
]
__all__ += loop_names.__all__


class Accelerator(accelerate.Accelerator):  # type: ignore[misc]
    """An Accelerator for one world, which takes the samples of a LoopSampler as they come.

    Others, such as those of an evaluation, it deals out to the ranks. It is made inside the
    function that ``hvd.elastic.run`` decorates.

    Args:
        args, kwargs: those of ``accelerate.Accelerator``.

    Raises:
        RuntimeError: Accelerate does not know of all workers.
        ValueError: a loader has an ElasticSampler, whose epoch Accelerate would change.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        elastic.check_is_whole(self.num_processes)

    def prepare_data_loader(self, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        sampler = getattr(data_loader, "sampler", None)
        if not isinstance(sampler, elastic.ElasticSampler):
            return super().prepare_data_loader(data_loader, *args, **kwargs)
        if not isinstance(sampler, elastic.LoopSampler):
            raise ValueError("a loader of Accelerate needs a hvd.elastic.LoopSampler")
        prepared = prepare_data_loader(
            data_loader, self.device, num_processes=1, process_index=0, put_on_device=True
        )
        self._dataloaders.append(prepared)
        return prepared
