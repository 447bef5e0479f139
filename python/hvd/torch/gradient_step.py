"""What is known of the gradients of an optimizer between one reduction and the next."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch._C import _WeakTensorRef  # type: ignore[attr-defined]

from hvd import _core
from hvd.basics import ProcessSet

from .compression import Compressor


@dataclasses.dataclass(frozen=True)
class Settings:
    """What an optimizer was told about its gradients."""

    compression: type[Compressor]
    op: int
    predivide: float
    groups: list[list[str]]
    number_of_groups: int
    sparse_as_dense: bool
    process_set: ProcessSet
    shards: int = 0  # over which an average is taken; 0: over the ranks


@dataclasses.dataclass(frozen=True)
class World:
    """What the ranks of a world have agreed on."""

    generation: int  # -1: another agreement comes before the next step
    name: str  # stands before those of all collectives
    reducer: _core.Reducer
    as_rows: set[int]  # sparse gradients that travel as such
    made_dense: set[int]  # sparse gradients that travel as dense ones
    second_round: int  # the reducer's index of a flag: a rank needs a second round


@dataclasses.dataclass
class Round:
    """One step of the reducer. A step of the optimizer has a second one in rare cases."""

    # By index: whose memory takes the result, what travels, what the compression wants to know.
    sent: dict[int, tuple[torch.Tensor, torch.Tensor, Any]] = dataclasses.field(
        default_factory=dict
    )
    is_second: bool = False  # of what came while the gradients of the first were in flight
    told: bool = False  # all that this rank has is sent
    filled: bool = False  # also what only other ranks have


@dataclasses.dataclass
class Step:
    """From one reduction to the next."""

    passes: int = 0
    is_in_pass: bool = False  # a gradient has come in a pass that has not ended
    come: set[int] = dataclasses.field(default_factory=set)  # gradients that passes have added to
    round: Round = dataclasses.field(default_factory=Round)
    # What a pass has added to a gradient that was in flight already.
    more: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    # What was reduced before, to which a sum is added.
    before: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)
    was_cut_off: bool = False  # by an exception: the program may have other gradients by now


class Left:
    """The gradient that a step has left, as long as it lives and is as it was."""

    def __init__(self, gradient: torch.Tensor | None) -> None:
        part = self._part(gradient)
        self.was_there = part is not None
        self._address = 0 if part is None else part.data_ptr()
        self._version = 0 if gradient is None else gradient._version
        self._reference = None if gradient is None else _WeakTensorRef(gradient)

    def is_still(self, gradient: torch.Tensor | None) -> bool:
        if gradient is None or self._reference is None or self._reference.expired():
            return False
        part = self._part(gradient)
        is_same = part is not None and part.data_ptr() == self._address
        return is_same and gradient._version == self._version

    @staticmethod
    def _part(gradient: torch.Tensor | None) -> torch.Tensor | None:
        return gradient._values() if gradient is not None and gradient.is_sparse else gradient
