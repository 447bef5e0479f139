"""The Trainer of Transformers, which goes on when workers come, go and die.

    import hvd.transformers as hvd

    hvd.init()
    model = AutoModelForCausalLM.from_config(config)
    state = hvd.elastic.LoopState(model)

    @hvd.elastic.run
    def train(state):
        arguments = TrainingArguments("output")
        trainer = hvd.ElasticTrainer(state, model=model, args=arguments, train_dataset=data)
        trainer.train()

    train(state)

TrainingArguments and the trainer belong to one world, so they are made inside the function.
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
from typing import Any

import transformers
from transformers.trainer import TRAINER_STATE_NAME

from hvd.torch.elastic import loop_names
from hvd.torch.elastic import loops as elastic
from hvd.torch.elastic.loop_names import *  # noqa: F403

__all__ = [
    "ElasticTrainer",
]
__all__ += loop_names.__all__


class _Steps(transformers.TrainerCallback):  # type: ignore[misc]
    """Tells an ElasticTrainer where its loop is.

    A step is committed where the next one begins: then it has been logged, evaluated and saved.
    """

    def __init__(self, trainer: ElasticTrainer) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._loop_state.begin_step(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._sampler.record_batch(
            0, self.trainer._batch * args.gradient_accumulation_steps
        )

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer._sampler.next_epoch()


def _counts_of(callback: Any) -> dict[str, Any]:
    """What of a callback survives: what it exports, and how patient EarlyStoppingCallback was."""
    if callable(getattr(callback, "state", None)):
        return dict(callback.state().get("attributes", {}))
    name = "early_stopping_patience_counter"  # which exports nothing in old versions
    return {name: getattr(callback, name)} if hasattr(callback, name) else {}


class ElasticTrainer(transformers.Trainer):  # type: ignore[misc]
    """A Trainer for one world. In the next one another trainer goes on in the middle of an epoch.

    Samples are shuffled by ``data_seed`` or ``seed``. All is counted in samples: in a world of
    another size the steps that are done, and ``max_steps``, are restated for its batches.

    Args:
        elastic_state: of the model.
        args, kwargs: those of ``transformers.Trainer``.

    Raises:
        RuntimeError: Transformers does not know of all workers.
        ValueError: the model is not that of the state, or the trainer begins from a checkpoint in
            files, or chooses its samples in another way.
    """

    _sampler: elastic.LoopSampler
    _loading = False

    def __init__(self, elastic_state: elastic.LoopState, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop_state = elastic_state
        elastic.check_is_whole(self.args.world_size)
        if self.model is not elastic_state.model:
            raise ValueError("the model of an ElasticTrainer must be that of its state")
        self.add_callback(_Steps(self))

    @property
    def _batch(self) -> int:
        """Samples of a batch, of all ranks."""
        ranks = 1 if self.accelerator.split_batches else self.args.world_size
        return int(self.args.train_batch_size * ranks)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if not hasattr(self, "_sampler"):
            if not hasattr(self.train_dataset, "__len__"):
                raise ValueError("an ElasticTrainer needs a train_dataset that has a length")
            strategy = getattr(self.args, "train_sampling_strategy", "random")
            if getattr(self.args, "group_by_length", False):
                strategy = "group_by_length"
            if strategy not in ("random", "sequential"):
                raise ValueError(f"an ElasticTrainer has no sampling strategy {strategy!r}")
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            self._sampler = elastic.LoopSampler(
                self.train_dataset, strategy == "random", seed, deals=False
            )
            if "sampler" in self._loop_state.loop:
                self._sampler.load_state_dict(self._loop_state.loop["sampler"])
        return self._sampler

    def _steps_of_epoch(self, loader: Any) -> int:
        if hasattr(self, "set_initial_training_values"):
            return int(self.set_initial_training_values(self.args, loader)[1])
        return max(len(loader) // self.args.gradient_accumulation_steps, 1)

    def _read_loop(self) -> dict[str, Any]:
        scaler = getattr(self.accelerator, "scaler", None)
        return {
            "trainer": self.state,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "sampler": self._sampler.state_dict(),
            "callbacks": [_counts_of(one) for one in self.callback_handler.callbacks],
            "first_steps": self._first_steps,
        }

    def _restate(self, loop: dict[str, Any], steps_of_epoch: int) -> None:
        """What the loop has counted, in batches of a world of this size."""
        accumulated = self.args.gradient_accumulation_steps
        done = self._sampler.batches_done(self._batch, self.args.dataloader_drop_last)
        state, scheduler = copy.copy(loop["trainer"]), dict(loop["scheduler"])
        before = state.global_step
        state.global_step = self._sampler.epoch * steps_of_epoch + done // accumulated
        self._sampler.replayed = done // accumulated * accumulated * self._batch
        if scheduler.get("last_epoch") == before:
            scheduler["last_epoch"] = state.global_step
        loop.update(trainer=state, scheduler=scheduler)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As ``transformers.Trainer.train()``, from the last commit if there is one."""
        if any(args) or kwargs.get("resume_from_checkpoint"):
            raise ValueError(
                "an ElasticTrainer begins from its state: load a checkpoint into the model before"
            )
        loader = self.get_train_dataloader()
        if self._sampler is not self._get_train_sampler():
            raise ValueError("an ElasticTrainer makes the sampler of its data loader itself")
        steps_of_epoch = self._steps_of_epoch(loader)
        loop = self._loop_state.loop
        self._first_steps = loop.get("first_steps", steps_of_epoch)
        if self.args.max_steps > 0:
            self.args.max_steps = math.ceil(
                self.args.max_steps * steps_of_epoch / self._first_steps
            )
        if not loop:
            self._loop_state.follow(self._read_loop)
            return self._train(None)
        self._sampler.replayed = self._sampler.processed_num
        if self._loop_state.has_other_size():
            self._restate(loop, steps_of_epoch)
        self._loading = True
        with tempfile.TemporaryDirectory() as directory:
            loop["trainer"].save_to_json(os.path.join(directory, TRAINER_STATE_NAME))
            return self._train(directory)

    def _train(self, directory: str | None) -> Any:
        try:
            return super().train(resume_from_checkpoint=directory)
        except BaseException:
            # The next world wraps the model's forward() again.
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
            raise

    def _load_from_checkpoint(self, resume_from_checkpoint: Any, model: Any = None) -> None:
        if not self._loading:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """Brings back what was committed, where the trainer would read its files."""
        if not self._loading:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        self._loading = False
        loop = self._loop_state.loop
        self.optimizer.load_state_dict(loop["optimizer"])
        self.lr_scheduler.load_state_dict(loop["scheduler"])
        if loop["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(loop["scaler"])
        for callback, counts in zip(self.callback_handler.callbacks, loop["callbacks"]):
            vars(callback).update(counts)
        self._loop_state.follow(self._read_loop)
