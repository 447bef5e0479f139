"""Collectives in flight, as ``torch.distributed`` sees them."""

from __future__ import annotations

import datetime
import itertools
import threading
import time
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


class WorkTimeoutError(TimeoutError, RuntimeError):
    """A call is not done within its limit of time. It is still in flight."""


def seconds_of(timeout: datetime.timedelta | None) -> float | None:
    """A limit in seconds; None if there is none, which torch says by 0 or a negative time."""
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return seconds if seconds > 0 else None


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
    ``name``, ``limit``: of the call, and the seconds for which ``wait()`` waits for it, if any.
    """

    name = ""
    limit: float | None = None

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

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        limit = seconds_of(timeout) or self.limit
        if limit is not None and not self.wait_until(time.monotonic() + limit):
            raise WorkTimeoutError(
                f"{self.name} is not done within its limit of {limit:g} s: some rank has not made "
                "this call, or is slower. It stays in flight, and may be waited for again. "
                "HVD_STALL_CHECK_TIME_SECONDS has hvd say which ranks others wait for"
            )
        self._complete()
        return True

    def wait_until(self, deadline: float) -> bool:
        """Returns at the deadline, a time of the monotonic clock. Whether it is done."""
        if not self.is_completed():
            done = threading.Event()
            self.when_done(lambda _: done.set())
            done.wait(max(0.0, deadline - time.monotonic()))
        return self.is_completed()

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


def half_of(work: Any) -> Any:
    """The half of a work that torch 2.15 has put into one of C++; any other work as it is.

    The two have nothing in common but that ``get_future()`` of the one calls that of the other.
    """
    if type(work) is not _TorchWork:
        return work
    _half.is_sought, _half.found = True, None
    try:
        work.get_future()
    except RuntimeError:
        pass  # a work without a future, of another backend
    finally:
        _half.is_sought = False
    found, _half.found = _half.found, None
    return work if found is None else found


def _tensors_in(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    else:
        for one in result:
            yield from _tensors_in(one)
