# ruff: noqa: D102 - the methods of callbacks are those of Keras
"""Callbacks for ``model.fit()``. Those of elastic training are in ``hvd.keras.elastic``, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

import hvd

from .elastic import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from .variables import broadcast_global_variables, build_optimizer, sync_model

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the root's variables, before the first batch if the model is built.

    Of a model that the first batch builds it is done after that batch.

    Args:
        root_rank: a rank of the world, also with a process set.
        device: of Horovod's signature.
        local_variables: of the model, which stay as they are.
        process_set: the ranks that train this model.
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: Sequence[Any] | None = None,
        process_set: hvd.ProcessSet = hvd.global_process_set,
    ) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.local_variables = list(local_variables or ())
        self.process_set = process_set
        self._is_done = False

    def _broadcast(self) -> None:
        if not self._is_done:
            broadcast_global_variables(
                self.root_rank, self.model, self.process_set, self.local_variables
            )
            self._is_done = True

    def on_train_begin(self, logs: Any = None) -> None:
        if self.model.built:
            build_optimizer(self.model, self.model.optimizer)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._broadcast()


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks. Callbacks that look at them come later."""

    def __init__(
        self, device: str = "", process_set: hvd.ProcessSet = hvd.global_process_set
    ) -> None:
        super().__init__()
        del device  # of Horovod's signature
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        names = sorted(name for name, value in (logs or {}).items() if np.ndim(value) == 0)
        if not names:
            return
        values = np.array([float(logs[name]) for name in names])
        average = hvd.allreduce(values, name="keras.metrics", process_set=self.process_set)
        logs.update(zip(names, average.tolist()))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to ``initial_lr * multiplier(epoch)``.

    Args:
        initial_lr: the rate at the multiplier 1.
        multiplier: a number, or a function of the epoch, which has a fraction unless
            ``staircase``.
        start_epoch, end_epoch: outside of them the rate is left alone.
        staircase: once an epoch, not at each batch.
        momentum_correction: a momentum is changed in proportion for the batch of a change.
        steps_per_epoch: if it is not known otherwise; not needed with ``staircase``.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._momentum: float | None = None

    def _steps(self) -> int:
        steps = self.steps_per_epoch or self.params.get("steps")
        if not steps:
            raise ValueError(
                "how many batches an epoch has is not known: give steps_per_epoch to the callback"
            )
        return int(steps)

    def _set(self, epoch: float) -> None:
        sync_model(self.model)
        optimizer = self.model.optimizer
        before = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        rate = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = rate
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, float) and momentum and before:
            self._momentum = momentum
            optimizer.momentum = momentum * rate / before

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(epoch + batch / self._steps())
        elif batch == 0:
            self._set(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._momentum is not None:
            self.model.optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the rate from ``initial_lr / size()`` to ``initial_lr`` within the first epochs.

    After Goyal et al., "Accurate, Large Minibatch SGD" (2017): the rate of one worker is multiplied
    by their number, and reached slowly.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The last batch of the warm-up has the whole rate.
            epoch += 1.0 / self._steps()
            return (epoch * (hvd.size() - 1) / warmup_epochs + 1) / hvd.size()

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == self.end_epoch - 1:
            rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: the learning rate is warm, at {rate:g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Keeps the best model in a file, which rank 0 writes.

    It comes after a ``MetricAverageCallback``, so that the metric is that of all ranks.

    Args:
        filepath: of the model, or of its weights.
        monitor, verbose, mode, save_freq, options: those of ``keras.callbacks.ModelCheckpoint``,
            but ``save_best_only``.
    """

    def __init__(
        self,
        filepath: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        **options: Any,
    ) -> None:
        super().__init__(
            filepath, monitor, verbose, True, mode=mode, save_freq=save_freq, **options
        )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if hvd.rank() == 0:
            super().on_epoch_end(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if hvd.rank() == 0:
            super().on_train_batch_end(batch, logs)
