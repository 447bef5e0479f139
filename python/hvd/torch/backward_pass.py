"""Backward passes of autograd, and what comes at the end of each."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Protocol

import torch
from torch.autograd.function import BackwardCFunction


class Part(Protocol):
    """What has a part in a backward pass."""

    number: int  # in the order in which they were made, which is that of all ranks

    def finish(self) -> Iterator[None]:
        """Does what comes at the end of the pass. Yields while it waits for other ranks."""
        ...


def run_together(turns: Iterable[Iterator[None]]) -> None:
    """Runs them to their ends, in turns: each may wait for what another rank does after one."""
    left = list(turns)
    while left:
        left = [one for one in left if next(one, left) is not left]


def _enclosing_node() -> Any:
    """The node of the graph that runs on this thread, if a Python function does its work."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is BackwardCFunction.apply.__code__:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


# By their threads. autograd calls the hooks of one pass on the same thread for each device.
_passes: weakref.WeakValueDictionary[int, BackwardPass] = weakref.WeakValueDictionary()


class BackwardPass:
    """A backward pass that a program has asked for, with all that run within it.

    Reentrant checkpoints run others within it. The end is that of the outermost.

    autograd keeps it until its end, or until an exception ends it: then it is gone, and what has
    only a weak reference to it knows.
    """

    def __init__(self) -> None:
        self._parts: set[Part] = set()
        self.is_over = False

    @classmethod
    def enter(cls, part: Part) -> BackwardPass:
        """The pass that runs on this thread; the part is told of its end."""
        thread = threading.get_ident()
        current = _passes.get(thread)
        if current is None or current.is_over:
            _passes[thread] = current = cls()
            current._ask_for_the_end()
        current._parts.add(part)
        return current

    def _ask_for_the_end(self) -> None:
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        engine.queue_callback(self._end)

    def _end(self) -> None:
        node = _enclosing_node()
        if node is not None and self._continue_after(node):
            return
        self.is_over = True
        with torch.no_grad():
            parts = sorted(self._parts, key=lambda one: one.number)
            run_together(one.finish() for one in parts)

    def _continue_after(self, node: Any) -> bool:
        """Asks for the end of the pass around this one, from the next node that runs in it.

        False: there is none.
        """
        following = [one for one, _ in node.next_functions if one is not None]
        handles: list[Any] = []

        def hook(*_: Any) -> None:
            while handles:
                handles.pop().remove()
            if not asked:
                asked.append(True)
                self._ask_for_the_end()

        asked: list[bool] = []
        handles.extend(one.register_hook(hook) for one in following)
        return bool(following)
