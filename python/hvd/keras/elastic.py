# ruff: noqa: D102 - the methods of callbacks are those of Keras
"""``fit()`` that goes on when workers come, go and die, in the middle of an epoch.

state = hvd.elastic.KerasState(model, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    model.fit(
        batches_from(state.epoch, state.batch), initial_epoch=state.epoch, epochs=10,
        callbacks=[
            hvd.callbacks.UpdateBatchStateCallback(state),
            hvd.callbacks.UpdateEpochStateCallback(state),
            hvd.callbacks.CommitStateCallback(state),
        ])

train(state)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import keras

import hvd.elastic
from hvd.elastic import ElasticSampler, ObjectState, State

from .variables import build_optimizer, set_values, sync_model, values_of, variables_of

__all__ = [
    "CommitStateCallback",
    "ElasticSampler",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_Result = TypeVar("_Result")


class KerasState(ObjectState):
    """A model, its optimizer and other objects that survive, as attributes.

    Args:
        model: a keras.Model that is built.
        optimizer: the model's own, if it is None. It is built here if it is not.
        kwargs: the other attributes and their first values, for example ``batch`` and ``epoch``,
            and samplers (``ElasticSampler``).
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not model.built:
            raise ValueError(
                "the model of a state must be built, so that its variables are known: by "
                "model.build(shape), or by an Input() in front"
            )
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        build_optimizer(model, optimizer)
        self.model = model
        self.optimizer = optimizer

    def _objects(self) -> Any:
        sync_model(self.model)
        return super()._objects(), values_of(variables_of(self.model, self.optimizer))

    def _set_objects(self, objects: Any) -> None:
        others, values = objects
        set_values(variables_of(self.model, self.optimizer), values)
        super()._set_objects(others)


def run(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """``hvd.elastic.run``, which also knows the exceptions that the backend makes of hvd's."""
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow"):
        return hvd.elastic.run(function)
    return importlib.import_module(f"hvd.{backend}.elastic").run(function)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state every so many batches, and at the end of an epoch.

    It comes last, after the callbacks that count batches and epochs, so that the counts are those
    of the commit.

    Args:
        batches_per_commit: a commit copies the model; a loss costs what was trained since the last
            one.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self._left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        # After the last batch there is nothing left of the epoch to begin with: its end commits.
        if self._left <= 0 and batch + 1 != self.params.get("steps"):
            self._left = self.batches_per_commit
            self.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.commit()

    def commit(self) -> None:
        """Commits the state. A subclass may do more."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps in ``state.batch`` how many batches of the epoch are done."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps in ``state.epoch`` how many epochs are done.

    ``fit()`` may count on from there (``initial_epoch=state.epoch``) or from 0, as in programs for
    Horovod (``epochs=total - state.epoch``).
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before: int | None = None  # epochs that fit() does not count

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._before is None:
            self._before = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = (self._before or 0) + epoch + 1
