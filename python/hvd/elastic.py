"""Training that goes on when workers come, go and die.

    import hvd

    hvd.init()
    state = hvd.elastic.ObjectState(weights=weights, step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < 1000:
            gradient = hvd.allreduce(gradient_of(state.weights), name="gradient")
            state.weights -= 0.1 * gradient
            state.step += 1
            state.commit()

    train(state)

After a failure all ranks go back to their last commit, or a newer one that some rank has; nothing
before a commit is lost. A state is for one thread at a time.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _core, _work, basics
from ._common_state import check_is_common, check_is_same, has_state_dict, may_differ
from ._pickling import Overrides, dumps_apart
from ._work import Max
from .arrays import allreduce
from .errors import (
    COLLECTIVE,
    HOSTS_UPDATED,
    OK,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    HvdError,
    LeftError,
    ProcessSetError,
)
from .objects import broadcast_object
from .sampler import ElasticSampler

__all__ = ["ElasticSampler", "ObjectState", "State", "run"]

_PROGRAMS_OWN = 1  # a code that ends a run, and is the program's own
_MOST_OF_REASON = 1000  # characters
_NAME = "python"  # of what is no tensor, in the state


# --- objects as bytes ----------------------------------------------------------------------------


class Packed:
    """An object as bytes: a head, and the memory of its arrays where it lies."""

    def __init__(self, body: bytes, buffers: list[pickle.PickleBuffer]) -> None:
        self.views: list[memoryview] = [buffer.raw() for buffer in buffers]
        sizes = [view.nbytes for view in self.views]
        self.head: bytes = struct.pack(f"<{len(sizes) + 2}Q", len(body), len(sizes), *sizes) + body

    def segments(self) -> list[tuple[int, int]]:
        """Address and size of each array."""
        return [
            (np.frombuffer(view, np.uint8).ctypes.data if view.nbytes else 0, view.nbytes)
            for view in self.views
        ]

    def joined(self) -> bytearray:
        """A copy of all of it."""
        return bytearray(b"".join([self.head, *self.views]))


def pack(value: Any, overrides: Overrides | None = None) -> Packed:
    """Packs an object, whose arrays are not copied."""
    return Packed(*dumps_apart(value, overrides))


def unpack(packed: bytearray) -> Any:
    """The reverse. The arrays lie in the memory of ``packed``."""
    body_size, count = struct.unpack_from("<2Q", packed)
    sizes = struct.unpack_from(f"<{count}Q", packed, 16)
    view = memoryview(packed)
    begin = 16 + 8 * count
    body = view[begin : begin + body_size]
    begin += body_size
    buffers = []
    for size in sizes:
        buffers.append(view[begin : begin + size])
        begin += size
    return pickle.loads(body, buffers=buffers)


def _is_same(own: Any, received: Any, overrides: Overrides | None) -> bool:
    """Whether an object is as another rank's, which has been packed and unpacked."""
    with contextlib.suppress(Exception):  # arrays in it have no single answer
        if own == received:
            return True
    again = unpack(pack(own, overrides).joined())
    return pack(again, overrides).joined() == pack(received, overrides).joined()


# --- states --------------------------------------------------------------------------------------


class State:
    """The state that must survive. Its kinds say what that is; see ``ObjectState``."""

    # How some objects of this kind of state become bytes.
    _overrides: Overrides | None = None

    def __init__(self) -> None:
        self._handle: _core.State | None = None
        self._running = False
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._notice_callbacks: list[Callable[[], Any]] = []
        self._saved: bytearray | None = None
        self._begins_run = False
        # By the names of what may be one rank's own: whether it was not as rank 0's.
        self._differs: dict[str, bool] = {}
        self._is_older = False  # rank 0 has the state of an earlier job

    # The methods that a kind of state defines.

    def _tensors(self) -> list[tuple[str, _work.Tensor, object]]:
        """Tensors that never move, by name, each with an object that keeps its memory there."""
        return []

    def _check_tensors(self) -> None:
        """Raises RuntimeError if one of them is not where it was."""

    def _objects(self) -> Any:
        """All else, as an object for pickle."""
        raise NotImplementedError

    def _set_objects(self, objects: Any) -> None:
        """Puts back what ``_objects()`` has given on some rank, at some time."""
        raise NotImplementedError

    def _copy_of_tensors(self) -> Any:
        """A copy of the tensors' values, as an object for pickle."""
        return None

    def _set_tensors(self, copy: Any) -> None:
        """Puts such a copy back into the tensors."""

    # The methods that users call.

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], Any]]) -> None:
        """Functions that are called when the world has changed, before the training goes on."""
        self._reset_callbacks.extend(callbacks)

    def on_notice(self, callback: Callable[[], Any]) -> None:
        """Has the function called by the commit at which this worker leaves for good.

        Its host goes, it was told to, or the job is suspended. All ranks have committed, and the
        state is as it was then. The function has until ``--leave-grace`` is over, and uses no
        collective. An exception that it raises ends the worker.
        """
        self._notice_callbacks.append(callback)

    def on_reset(self) -> None:
        """Called when the world has changed, with the state in place."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def reset(self) -> None:
        """For kinds of states: called first when the world has changed."""

    def commit(self) -> None:
        """All ranks agree to have come this far; from now on nothing before is lost.

        Raises:
            HostsUpdatedInterrupt: the world changes here; for ``run``, which goes on with it.
            HorovodInternalError: the world has failed; for ``run``, too.
            StateDivergedError: the states of the ranks differ, where they are compared.
        """
        if not self._running:
            self.save()
            return
        self._saved = None
        self._hand_over()
        try:
            self._core_state().commit()
        except HostsUpdatedInterrupt:
            if self._core_state().leaves():
                for callback in self._notice_callbacks:
                    callback()
            raise

    def check_host_updates(self) -> None:
        """Commits if the world is to change, so that it changes here. Else it costs little.

        Raises what ``commit()`` raises.
        """
        # Packing the objects costs far more than the question.
        if self._running and self._core_state().change_due():
            self.commit()

    def save(self) -> None:
        """Keeps a copy on this rank alone, for ``restore()``."""
        self._saved = pack((self._copy_of_tensors(), self._objects()), self._overrides).joined()

    def restore(self) -> None:
        """Brings back what was saved or committed last on this rank.

        Raises:
            RuntimeError: nothing was, and the state does not run.
        """
        if self._saved is not None:
            tensors, objects = unpack(bytearray(self._saved))
            self._set_tensors(tensors)
            self._set_objects(objects)
        elif self._running:
            self._check_tensors()
            self._core_state().restore()
            self._take_over()
        else:
            raise RuntimeError("there is nothing to restore: save() or commit() comes first")

    def sync(self) -> None:
        """All ranks get what rank 0 holds now."""
        if self._running:
            self._hand_over()
            self._core_state().sync()
            self._take_over()
            return
        everything = (self._copy_of_tensors(), self._objects())
        packed = bytes(pack(everything, self._overrides).joined()) if basics.rank() == 0 else b""
        tensors, objects = unpack(bytearray(broadcast_object(packed)))
        self._set_tensors(tensors)
        self._set_objects(objects)
        self.save()

    # Between Python and hvd.

    def _enter_world(self, is_new: bool) -> None:
        """In a later world: on_reset(), and what it has changed goes to those that are new.

        A callback may depend on the world, as for a learning rate that grows with it. Some ranks
        may have callbacks that others lack, so all of them ask each other.
        """
        if not is_new:
            self.on_reset()
        has_callbacks = bool(self._reset_callbacks) or type(self).on_reset is not State.on_reset
        told = [is_new, not is_new, has_callbacks, self._is_older, *self._differs.values()]
        flags = np.array(told, np.uint8)
        any_new, any_old, any_callbacks, is_older, *differ = allreduce(
            flags, name="hvd.elastic.new", op=Max
        ).tolist()
        if not (any_old or is_older):
            for name, differs in zip(self._differs, differ):
                check_is_same(name, bool(differs))
        # Rank 0 is new only if all are: those that stay come first.
        if any_new and any_old and any_callbacks:
            self.sync()

    def _end_run(self) -> None:
        """An error of the program ends the run."""
        # A call that a signal has interrupted has its part of the state for good.
        with contextlib.suppress(RuntimeError):
            self._core_state().next(_PROGRAMS_OWN, b"")

    def _core_state(self) -> _core.State:
        if self._handle is None:
            handle = _core.State(0)
            for name, tensor, owner in self._tensors():
                handle.add_tensor(name, tensor, owner)
            handle.add_bytes(_NAME)
            self._handle = handle
        return self._handle

    def _hand_over(self) -> None:
        self._check_tensors()
        packed = pack(self._objects(), self._overrides)
        self._core_state().set_bytes(packed.head, packed.segments(), packed.views)

    def _take_over(self) -> None:
        loaded = self._core_state().take_loaded()
        if loaded is not None:
            self._set_objects(unpack(loaded))


class ObjectState(State):
    """Python objects, as attributes. They must be such as ``pickle`` takes.

    Args:
        bcast_object, get_rank: of Horovod's signature; hvd does not need them.
        kwargs: the attributes and their first values. Of one that has ``state_dict()`` and
            ``load_state_dict()`` then, such as a sampler or a scheduler, these survive, and it
            stays the object that it is.

    All ranks get what rank 0 has. A DataLoader or DistributedSampler of PyTorch is a ValueError,
    since it belongs to one rank. So are samples and random numbers, of an object that can be
    iterated over and has a ``state_dict()`` or of a random generator, that are not the same on all
    ranks where a run begins.
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any) -> None:
        del bcast_object, get_rank
        super().__init__()
        self._names = list(kwargs)
        self._loaded = {name for name, value in kwargs.items() if has_state_dict(value)}
        self._differs = {name: False for name, value in kwargs.items() if may_differ(value)}
        for name, value in kwargs.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(f'a state cannot have an attribute "{name}"')
            check_is_common(name, value)
            setattr(self, name, value)

    if TYPE_CHECKING:
        # The program chooses the names.
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def _objects(self) -> Any:
        return {name: self._object_of(name) for name in self._names}

    def _object_of(self, name: str) -> Any:
        value = getattr(self, name)
        if name in self._loaded:
            return value.state_dict()
        check_is_common(name, value)
        return value

    def _compare(self, objects: dict[str, Any]) -> None:
        """Where a run begins: how this rank's objects are beside those of rank 0."""
        self._is_older = basics.rank() == 0  # which receives only what was kept in a file
        for name in self._differs:
            self._differs[name] = not _is_same(
                self._object_of(name), objects[name], self._overrides
            )

    def _set_objects(self, objects: Any) -> None:
        if self._begins_run:
            self._compare(objects)
        for name, value in objects.items():
            if name in self._loaded:
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, value)

    def reset(self) -> None:
        """Shares out what the samplers have left, in the new world."""
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, ElasticSampler):
                value.reset()


# --- run -----------------------------------------------------------------------------------------

Result = TypeVar("Result")


def run(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates the training function, whose first argument is a state.

    It is called again with the state in place whenever the world has changed, until it has
    returned on all ranks of one world. A HorovodInternalError that the program raises itself ends
    the world for all ranks, and all go on from the last commit. Every other exception than that and
    HostsUpdatedInterrupt goes through. A worker that is not needed any more ends with exit code 0.
    All workers call it equally often. In a newcomer that comes when the others are in a later run
    the function is not called in the earlier ones, and the result is None.

    Raises:
        StateLostError: every worker that held the committed state is gone.
        HorovodInternalError: the world has failed, and ``hvdrun`` cannot change it; or the program
            has raised it five times without a commit between them.
        RuntimeError: the program itself has raised HostsUpdatedInterrupt.
    """

    @functools.wraps(function)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Result:
        if not isinstance(state, State):
            raise TypeError(f"the first argument is a state, not {type(state).__name__}")
        if state._running:
            raise RuntimeError("this state runs already")
        state._running = True
        state._saved = None
        try:
            return _lead(state, lambda: function(state, *args, **kwargs))
        finally:
            state._running = False

    return wrapper


_hidden: list[HorovodInternalError] = []


def note_hidden_failure(error: HorovodInternalError) -> None:
    """For calls that reach hvd through a library which makes another exception of hvd's.

    What is raised next out of the function that ``run`` calls is taken for a failure of the world.
    """
    _hidden.append(error)


def _was_raised_by_hvd(error: HostsUpdatedInterrupt) -> bool:
    """Whether hvd has raised it, or the program in reaction to one that hvd has raised."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        if isinstance(cause, HostsUpdatedInterrupt) and cause.code == HOSTS_UPDATED:
            return True
        seen.add(id(cause))
        waiting += [cause.__cause__, cause.__context__]
    return False


def _reason_of(failure: BaseException | None) -> bytes:
    """The text of a failure, which the other ranks see, too, where it ends their world."""
    text = "" if failure is None else str(failure)[:_MOST_OF_REASON]
    return text.replace("\0", "").encode(errors="backslashreplace")


def _lead(state: State, function: Callable[[], Result]) -> Result:
    code = OK
    result: Any = None
    failure: BaseException | None = None
    first = True
    while True:
        if failure is None:
            state._hand_over()
        else:
            # What it holds now is given up, and may not even be there: arrays that JAX still
            # computes are as good as lost if their computation has failed.
            state._check_tensors()
        try:
            is_called = state._core_state().next(code, _reason_of(failure))
        except LeftError:
            sys.exit(0)
        except HvdError as error:
            if failure is not None and error.code == code:
                raise failure from None
            raise
        if not is_called:
            return result
        basics.note_entered_world()
        # Its traceback holds all that the failed call has made, such as process groups.
        failure = result = None
        state._saved = None
        state._begins_run = first
        state._take_over()
        state._begins_run = False
        is_new, first = first, False

        _hidden.clear()
        try:
            state._enter_world(is_new)
            result = function()
            code, failure = OK, None
        except HostsUpdatedInterrupt as error:
            if not _was_raised_by_hvd(error):
                state._end_run()
                raise RuntimeError(
                    "the program itself has raised HostsUpdatedInterrupt, which forms no other "
                    "world: state.commit() and state.check_host_updates() raise it when hosts have "
                    "changed"
                ) from error
            code, failure = HOSTS_UPDATED, error
        except (HorovodInternalError, ProcessSetError) as error:
            code, failure = error.code or COLLECTIVE, error
        except BaseException as error:
            if not (_hidden and isinstance(error, RuntimeError)):
                state._end_run()
                raise
            code, failure = _hidden[0].code or COLLECTIVE, error
