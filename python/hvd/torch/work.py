"""Collectives in flight, as ``torch.distributed`` sees them."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hvd._work import Handle
from hvd.elastic import note_hidden_failure
from hvd.errors import HorovodInternalError

from . import reconfigure
from .tensors import writing

_torch: Any = torch  # its private parts have no types
_TorchWork: Any = _torch._C._distributed_c10d.Work


class Done:
    """In the place of a handle: nothing is in flight, and ``error`` is what has come of it."""

    def __init__(self, error: HorovodInternalError | None = None) -> None:
        self._error = error

    def ready(self) -> bool:
        return True

    def wait(self) -> None:
        if self._error is not None:
            raise self._error

    def when_done(self, callback: Callable[[Done], Any]) -> None:
        callback(self)


class All:
    """In the place of a handle: several works, which are done when all of them are."""

    def __init__(self, works: Sequence[HvdWork]) -> None:
        self._works = works

    def ready(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def wait(self) -> None:
        """Waits for all of them. Raises the first error."""
        first: Exception | None = None
        for work in self._works:
            try:
                work.wait()
            except Exception as error:  # noqa: BLE001 - raised when the others are done, too
                first = first or error
        if first is not None:
            raise first

    def when_done(self, callback: Callable[[All], Any]) -> None:
        if not self._works:
            callback(self)
        left = itertools.count(len(self._works) - 1, -1)

        def count(_: Any) -> None:
            if next(left) == 0:
                callback(self)

        for work in self._works:
            work.when_done(count)


class HvdWork(_TorchWork):
    """A collective in flight, as torch sees it. It may be waited for by several threads.

    ``failures``: of the backward pass that it belongs to, and that goes on if it fails.
    ``sender``: the rank in the group of a receive's sender.
    """

    def __init__(
        self,
        handle: Handle[Any] | Done | All,
        result: Any,
        finish: Callable[[Any], Any] | None = None,
        failures: reconfigure.Failures | None = None,
        sender: int | None = None,
    ) -> None:
        super().__init__()
        self._sender = sender
        self._handle: Any = handle
        self._failures = failures
        self._result = result
        self._finish = finish
        self._lock = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None
        if finish is not None:
            self.get_future()  # outputs are filled also if nobody waits

    def _complete(self) -> None:
        """Blocks until ``result`` is there. Raises what went wrong."""
        try:
            value = self._handle.wait()
        except HorovodInternalError as error:
            if self._failures is None:
                raise
            self._failures.note(error)
            return
        with self._lock:
            if self._finish is not None:
                with writing(_tensors_in(self._result)):
                    self._finish(value)
                self._finish = None

    def wait(self, timeout: Any = None) -> bool:
        del timeout  # hvd's own limits hold: of a rank that is lost all others hear
        self._complete()
        return True

    def is_completed(self) -> bool:
        return self._handle.ready()

    def exception(self) -> BaseException | None:
        if self.is_completed():
            try:
                self._complete()
            except Exception as error:  # noqa: BLE001 - it is what is asked for
                return error
        return None

    def when_done(self, callback: Callable[[Any], Any]) -> None:
        """Calls ``callback`` when nothing of it is in flight any more."""
        self._handle.when_done(callback)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def source_rank(self) -> int:
        if self._sender is None:
            raise RuntimeError("source_rank(): this work is not a receive")
        return self._sender

    _source_rank = source_rank  # the name in newer versions of torch

    def result(self) -> Any:
        self._complete()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        if _half.is_sought:
            _half.found = self
            return torch.futures.Future()
        if self._future is not None:
            return self._future
        devices: Any = [one.device for one in _tensors_in(self._result) if one.is_cuda]
        done: torch.futures.Future[Any] = torch.futures.Future(devices=devices[:1] or None)

        # An exception that is set on a future is a value to torch's C++, which takes it for
        # tensors. One that is raised in its callback is an error there, too.
        def result_or_error(_: Any) -> Any:
            try:
                self._complete()
            except HorovodInternalError as error:
                note_hidden_failure(error)
                raise
            return self._result

        self._future = done.then(result_or_error)
        if self._handle.ready():
            done.set_result(None)
        else:
            self._handle.when_done(lambda _: done.set_result(None))
        return self._future


class _Half(threading.local):
    """The Python half of a Work of torch, while this thread looks for it."""

    is_sought = False
    found: HvdWork | None = None


_half = _Half()


def _half_of(work: Any) -> HvdWork | None:
    """The half of a work that torch 2.15 has put into one of C++; None of other backends' works.

    The two have nothing in common but that ``get_future()`` of the one calls that of the other.
    """
    _half.is_sought, _half.found = True, None
    try:
        work.get_future()
    except RuntimeError:
        pass  # a work without a future, of another backend
    finally:
        _half.is_sought = False
    found, _half.found = _half.found, None
    return found


def let_halves_answer() -> None:
    """Lets the Work in C++ that torch 2.15 gives to a program ask its half in Python for all.

    By itself it does so for ``wait()`` and ``get_future()``, and has other answers of its own: that
    it is not completed, and successful.
    """
    for name in "is_completed", "is_success", "exception", "result", "source_rank", "_source_rank":
        if hasattr(_TorchWork, name):
            setattr(_TorchWork, name, _asks_half(getattr(_TorchWork, name), getattr(HvdWork, name)))


def _asks_half(of_torch: Any, of_half: Any) -> Any:
    @functools.wraps(of_torch)
    def method(work: Any) -> Any:
        half = _half_of(work) if type(work) is _TorchWork else None
        return of_torch(work) if half is None else of_half(half)

    return method


def _tensors_in(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    else:
        for one in result:
            yield from _tensors_in(one)
