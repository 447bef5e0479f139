"""Backward passes of autograd, and what comes at the end of each."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
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


# The number of the graph that runs on this thread, from torch 2.1.
_graph_task: Callable[[], int] | None
_graph_task = getattr(torch._C, "_current_graph_task_id", None)  # type: ignore[attr-defined]


def _watch_outer() -> Callable[[], bool]:
    """Within an inner pass that has ended: tells whether the one around it still runs."""
    if _graph_task is not None:  # graphs have ascending numbers
        inner, task = _graph_task(), _graph_task
        return lambda: _enclosing_node() is not None or task() < inner
    frame: FrameType | None = sys._getframe(1)
    outermost = frame
    while frame is not None:
        if frame.f_code is torch.autograd.backward.__code__:
            outermost = frame
        frame = frame.f_back

    def runs() -> bool:
        try:
            outermost.clear()  # type: ignore[union-attr]
        except RuntimeError:  # it cannot be cleared while it runs
            return True
        return False

    return runs


class BackwardPass:
    """A backward pass that a program has asked for, with all that run within it.

    Reentrant checkpoints run others within it. The end is that of the outermost.

    autograd keeps it until its end, or until an exception ends it: then it is gone, and what has
    only a weak reference to it knows. Between two passes within another a node of the graph keeps
    it, which may live on after an exception.
    """

    def __init__(self) -> None:
        self._parts: set[Part] = set()
        self._is_over = False
        self._outer_runs: Callable[[], bool] | None = None  # while a node keeps this
        self._handles: list[Any] = []  # of the hooks of such nodes

    @classmethod
    def enter(cls, part: Part) -> BackwardPass:
        """The pass that runs on this thread; the part is told of its end."""
        thread = threading.get_ident()
        current = _passes.get(thread)
        if current is None or not current.runs():
            _passes[thread] = current = cls()
            current._ask_for_the_end()
        current._parts.add(part)
        return current

    def runs(self) -> bool:
        """Whether its end is still to come."""
        if self._outer_runs is not None and not self._outer_runs():
            self._is_over = True
            self._leave_nodes()
        return not self._is_over

    def _ask_for_the_end(self) -> None:
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        engine.queue_callback(self._end)

    def _end(self) -> None:
        node = _enclosing_node()
        if node is not None and self._continue_after(node):
            return
        self._is_over = True
        with torch.no_grad():
            parts = sorted(self._parts, key=lambda one: one.number)
            run_together(one.finish() for one in parts)

    def _continue_after(self, node: Any) -> bool:
        """Asks for the end of the pass around this one, from the next node that runs in it.

        False: there is none.
        """

        def hook(*_: Any) -> None:
            if self._outer_runs is not None:
                self._leave_nodes()
                self._ask_for_the_end()

        following = [one for one, _ in node.next_functions if one is not None]
        self._handles = [one.register_hook(hook) for one in following]
        self._outer_runs = _watch_outer() if following else None
        return bool(following)

    def _leave_nodes(self) -> None:
        self._outer_runs = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
