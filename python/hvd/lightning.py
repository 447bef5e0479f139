# ruff: noqa: D102 - these methods are those of Lightning
"""Lightning's Trainer, which goes on when workers come, go and die.

    import lightning.pytorch as pl
    import hvd.lightning as hvd

    hvd.init()
    module = Module()
    sampler = hvd.elastic.LoopSampler(data)
    state = hvd.elastic.LoopState(module, sampler=sampler)

    @hvd.elastic.run
    def train(state):
        trainer = pl.Trainer(
            max_epochs=10,
            strategy=hvd.ElasticStrategy(state),
            callbacks=[hvd.CommitCallback(state)],
            use_distributed_sampler=False,
        )
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        trainer.fit(module, loader, ckpt_path=hvd.checkpoint_of(state))

    train(state)

The trainer belongs to one world, so it is made inside the function.
"""

from __future__ import annotations

import copy
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy

from hvd import basics
from hvd.torch.elastic import loop_names
from hvd.torch.elastic import loops as elastic
from hvd.torch.elastic.loop_names import *  # noqa: F403

__all__ = [
    "CommitCallback",
    "ElasticStrategy",
    "checkpoint_of",
]
__all__ += loop_names.__all__

_IN_MEMORY = "the last commit of hvd"  # in place of the path of a checkpoint


class _Places(ClusterEnvironment):  # type: ignore[misc]
    """Takes the places of the workers from hvdrun, however many each host has."""

    creates_processes_externally = True
    main_address = "localhost"  # the process group of hvd needs none
    main_port = 0

    @staticmethod
    def detect() -> bool:
        return False  # it is for an ElasticStrategy alone

    def world_size(self) -> int:
        return basics.size()

    def global_rank(self) -> int:
        return basics.rank()

    def local_rank(self) -> int:
        return basics.local_rank()

    def node_rank(self) -> int:
        return basics.cross_rank()

    def set_world_size(self, size: int) -> None:
        pass

    def set_global_rank(self, rank: int) -> None:
        pass


class ElasticStrategy(DDPStrategy):  # type: ignore[misc]
    """DistributedDataParallel in one world, which begins from the last commit.

    ``devices`` and ``num_nodes`` of the trainer need not be given: hvdrun knows them, and hosts may
    have different numbers of workers. The module stays on its device.

    Args:
        state: of the module.
        kwargs: those of ``DDPStrategy``.
    """

    def __init__(self, state: elastic.LoopState, **kwargs: Any) -> None:
        super().__init__(cluster_environment=_Places(), process_group_backend="hvd", **kwargs)
        self._state = state

    @property
    def root_device(self) -> torch.device:
        return self._state.device

    @property
    def num_processes(self) -> int:
        return basics.local_size()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if checkpoint_path == _IN_MEMORY:
            return dict(self._state.loop["checkpoint"])
        return super().load_checkpoint(checkpoint_path, *args, **kwargs)  # type: ignore[no-any-return]

    def load_model_state_dict(self, checkpoint: Any, *args: Any, **kwargs: Any) -> None:
        # The state has brought the weights of a commit back already.
        if "state_dict" in checkpoint:
            super().load_model_state_dict(checkpoint, *args, **kwargs)

    def teardown(self) -> None:
        """Leaves the module, which the state keeps by its address, where it is."""
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self.checkpoint_io.teardown()


def checkpoint_of(state: elastic.LoopState, otherwise: Any = None) -> Any:
    """The ``ckpt_path`` for ``fit()``: the last commit, or before the first one ``otherwise``."""
    return _IN_MEMORY if state.loop else otherwise


class CommitCallback(pl.Callback):  # type: ignore[misc]
    """Commits the state where a step begins, when the one before has been logged and validated.

    It counts the batches of an epoch in the state's ``sampler``, a ``LoopSampler``.

    Args:
        state: of the module that is trained.
    """

    def __init__(self, state: elastic.LoopState) -> None:
        self._state: Any = state

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if not isinstance(getattr(self._state, "sampler", None), elastic.LoopSampler):
            raise ValueError("the state needs a sampler=hvd.elastic.LoopSampler(data)")
        if pl_module is not self._state.model:
            raise ValueError("the module that is trained must be that of the state")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loop, sampler = trainer.fit_loop.epoch_loop, self._state.sampler
        loader = trainer.train_dataloader
        given: Any = getattr(loader, "sampler", None)
        if given is not sampler:
            raise ValueError(
                "the data loader needs the sampler of the state, and the trainer needs "
                "use_distributed_sampler=False"
            )
        batch = loader.batch_size * basics.size()
        done = sampler.batches_done(batch, loader.drop_last)
        if self._state.has_other_size():
            for count in ("ready", "started", "processed", "completed"):
                setattr(loop.batch_progress.current, count, done)
        if done == 0:
            # Lightning would take it for the end of the epoch before, and validate again.
            loop.restarting = False
        self._state.follow(lambda: {"checkpoint": _checkpoint_of(trainer)})

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._state.begin_step(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._state.sampler.record_batch(0, trainer.train_dataloader.batch_size)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._state.sampler.next_epoch()


def _checkpoint_of(trainer: Any) -> dict[str, Any]:
    """What Lightning would write to a file, but for the weights and the places in data loaders."""
    checkpoint = dict(trainer._checkpoint_connector.dump_checkpoint(weights_only=False))
    del checkpoint["state_dict"]
    checkpoint["loops"] = loops = copy.deepcopy(checkpoint["loops"])
    loops["fit_loop"]["state_dict"].pop("combined_loader", None)
    # The batch that begins has been fetched, and is fetched again.
    progress = loops["fit_loop"]["epoch_loop.batch_progress"]
    for counts in progress["total"], progress["current"]:
        counts["ready"] = counts["completed"]
    return checkpoint
