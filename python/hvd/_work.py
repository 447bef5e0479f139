"""The part that the calls for all kinds of arrays share: how a collective is started and ended."""

from __future__ import annotations

import atexit
import contextlib
import enum
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from . import _core
from .basics import ProcessSet, number_of
from .errors import InvalidArgumentError, as_disagreement

T = TypeVar("T")

# (address, shape, type, device), by the numbers of hvd/c_api.h.
Tensor = tuple[int, tuple[int, ...], int, int]


class Kind(enum.IntEnum):
    """The collectives, by the numbers of ``enum kind`` in extension/work.c.

    ``hvd::Collective`` has other numbers: a barrier is 5 here, and 2 there.
    """

    ALLREDUCE = 0
    BROADCAST = 1
    ALLGATHER = 2
    ALLTOALL = 3
    REDUCESCATTER = 4
    BARRIER = 5
    JOIN = 6
    SPARSE_ALLREDUCE = 7
    SEND = 8
    RECV = 9


class ReduceOp(enum.IntEnum):
    """How values of several ranks become one."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

# Types by the name that NumPy and PyTorch give them.
TYPES = {
    name: number
    for number, name in enumerate(
        "bool uint8 int8 uint16 int16 int32 int64 float16 bfloat16 float32 float64 "
        "float8_e4m3fn float8_e5m2".split()
    )
}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
HOST = 0


def cuda(device: int) -> int:
    """The number of a CUDA device, for a tensor tuple."""
    return device + 1


def choose_op(op: int | None, average: bool | None) -> ReduceOp:
    """The operation of a call in Horovod's manner; ``average`` is its older argument."""
    if average is not None:
        if op is not None:
            raise ValueError("op and average cannot both be given; average is the older one")
        return Average if average else Sum
    return Average if op is None else ReduceOp(op)


class Handle(Generic[T]):
    """A collective in flight. ``synchronize()`` gives its result, once and for all."""

    def __init__(self, work: _core.Work, finish: Callable[[_core.Work], T]) -> None:
        self._work = work
        self._finish = finish
        self._result: T | None = None
        self._finished = False
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether ``wait()`` would return at once."""
        return self._work.ready()

    def wait(self) -> T:
        """Blocks until the collective is done. Raises what went wrong, at each call."""
        try:
            self._work.wait()
        except InvalidArgumentError as error:
            # An error that only the ranks together can find.
            raise as_disagreement(error) from None
        with self._lock:
            if not self._finished:
                self._result = self._finish(self._work)
                self._finished = True
        return self._result  # type: ignore[return-value]

    def add_done_callback(self, callback: Callable[[Handle[T]], None]) -> None:
        """Calls ``callback(handle)`` when the collective is done, one callback at a time."""
        _completions.notify(self._work, lambda: callback(self), False)

    def when_done(self, callback: Callable[[Handle[T]], None]) -> None:
        """As ``add_done_callback()``, of a callback that may wait for those of other work."""
        _completions.notify(self._work, lambda: callback(self), True)


class _Completions:
    """The threads that run the callbacks of work that is done.

    There is one, until callbacks come that may wait for others. While such a one runs, another
    thread waits for what is done next.

    They end before the interpreter does, which would cut them off in the middle of a callback: C++
    code that a thread is cut off in, as that of torch, ends the process. A callback that hangs, for
    example in a collective for which the other ranks do not come any more, must not keep the
    process, and with it the job, from ending.
    """

    _MOST_IDLE = 2
    _END_TIMEOUT = 60.0  # seconds, for callbacks that run when the program ends
    _END_STEP = 0.05  # seconds, after which threads are asked again whether they can end

    def __init__(self) -> None:
        self.begin()
        self._tags = itertools.count(1)
        self._ended = False

    def begin(self) -> None:
        """Begins anew, as a forked child, which does not have the threads."""
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)  # notified when a thread has ended
        self._one_at_a_time = threading.Lock()  # of the callbacks that do not wait for others
        self._callbacks: dict[int, tuple[Callable[[], None], bool]] = {}
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads that wait for what is done next, or are about to
        self._may_wait = 0  # callbacks that run, and may wait for others

    def notify(self, work: _core.Work, callback: Callable[[], None], may_wait: bool) -> None:
        """Has the callback run when the work is done, unless the program ends before."""
        with self._lock:
            if not self._threads:
                if self._ended:
                    return
                self._start_thread()
            if may_wait and len(self._threads) == 1:
                self._start_thread_if_possible()
            tag = next(self._tags)
            self._callbacks[tag] = callback, may_wait
        try:
            work.notify(tag)
        except BaseException:
            with self._lock:
                del self._callbacks[tag]
            raise

    def end(self) -> None:
        """Waits for the callbacks of work that is done, when the program ends."""
        limit = time.monotonic() + self._END_TIMEOUT
        with self._lock:
            self._ended = True
            known = set(self._threads)
            if threading.current_thread() in known:
                return
            while self._threads and time.monotonic() < limit:
                known |= self._threads
                for _ in self._threads:
                    _core.end_completions()
                self._left.wait(self._END_STEP)
        for thread in known:
            thread.join(max(0.0, limit - time.monotonic()))

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="hvd completions", daemon=True)
        thread.start()
        self._threads.add(thread)
        self._idle += 1

    def _start_thread_if_possible(self) -> None:
        # Python starts none while the interpreter ends. Most callbacks do not wait for others.
        with contextlib.suppress(RuntimeError):
            self._start_thread()

    def _run(self) -> None:
        try:
            while self._run_one():
                pass
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                self._left.notify_all()

    def _run_one(self) -> bool:
        """Waits for work that is done, and runs its callback. False: this thread ends."""
        tag = _core.next_completion()
        with self._lock:
            if tag == 0:
                if self._may_wait > 0:
                    return True  # for something that may be done yet
                self._idle -= 1
                return False
            callback, may_wait = self._callbacks.pop(tag)
            self._idle -= 1
            self._may_wait += may_wait
            if may_wait and self._idle == 0:
                self._start_thread_if_possible()
        try:
            with contextlib.nullcontext() if may_wait else self._one_at_a_time:
                callback()
        except BaseException:  # noqa: BLE001 - reported as a thread's is
            threading.excepthook(
                threading.ExceptHookArgs((*_current_error(), threading.current_thread()))
            )
        finally:
            with self._lock:
                self._may_wait -= may_wait
        with self._lock:
            if self._idle >= self._MOST_IDLE:
                return False
            self._idle += 1
            return True


def _current_error() -> tuple[Any, Any, Any]:
    import sys

    return sys.exc_info()


_completions = _Completions()
atexit.register(_completions.end)  # after what the program registers
os.register_at_fork(after_in_child=_completions.begin)


def _check_handle(handle: Any) -> None:
    if not isinstance(handle, Handle):
        raise TypeError(
            f"the handle that an asynchronous call gives is needed, not {type(handle).__name__}"
        )


def synchronize(handle: Handle[T]) -> T:
    """Blocks until an asynchronous call is done, and gives its result.

    Raises:
        TypeError: it is not a handle.
        HorovodInternalError: the collective failed.
        DisagreementError: the ranks disagree on what it is.
    """
    _check_handle(handle)
    return handle.wait()


def poll(handle: Handle[Any]) -> bool:
    """Whether ``synchronize(handle)`` would return at once. Raises TypeError of no handle."""
    _check_handle(handle)
    return handle.ready()


def whole_numbers(splits: Sequence[Any]) -> list[int]:
    """The rows for each rank. Raises ValueError if one of them is no whole number."""
    rows = [int(count) for count in splits]
    if any(own != given for own, given in zip(rows, splits)):
        raise ValueError(f"splits are whole numbers, not {splits}")
    return rows


def start(
    kind: Kind,
    inputs: Tensor | list[Tensor] | None,
    outputs: Tensor | list[Tensor] | None = None,
    *,
    process_set: ProcessSet,
    name: str | None = None,
    op: int = Average,
    prescale: float = 1.0,
    postscale: float = 1.0,
    compression: int = 0,
    root: int = 0,
    splits: list[int] | None = None,
    keep: object = None,
    stream: int = -1,
) -> _core.Work:
    """Starts a collective. ``keep`` owns the memory of its tensors, and lives as long as needed."""
    return _core.start(
        kind,
        inputs,
        outputs,
        name,
        op,
        compression,
        prescale,
        postscale,
        root,
        number_of(process_set),
        splits,
        keep,
        stream,
    )
