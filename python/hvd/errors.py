"""The errors that the calls of hvd raise.

Every exception has ``code`` (a number of ``hvd/c_api.h``), ``rank`` and ``host`` (whose loss it
was; -1 and "" if that is not known) and ``cause`` (what happened to it, or "").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import _core


class HvdError(RuntimeError):
    """The base of all errors of hvd."""

    code: int = 0
    rank: int = -1
    host: str = ""
    cause: str = ""


class NotInitializedError(HvdError, ValueError):
    """``init()`` comes first."""


class InvalidArgumentError(HvdError, ValueError):
    """An argument is wrong, or the ranks disagree on one."""


class ProcessSetError(InvalidArgumentError):
    """A process set cannot be used: unknown, a duplicate, not dynamic, or without this rank."""


class NotDynamicError(ProcessSetError):
    """Code in another language has formed the world, without dynamic process sets."""


class UnknownProcessSetError(ProcessSetError):
    """There is no such process set, or no longer."""


class NotAMemberError(ProcessSetError):
    """This rank is not in the process set."""


class DuplicateProcessSetError(ProcessSetError):
    """These ranks are a process set already."""


class InitError(HvdError):
    """The world could not be formed."""


class HorovodInternalError(HvdError):
    """A collective failed: a member of the world is gone, or was stopped.

    In an elastic job ``hvd.elastic.run`` catches it, and goes on in another world. The name is that
    under which programs written for Horovod know it.
    """


CollectiveError = HorovodInternalError


class ShutDownError(HorovodInternalError, ProcessSetError):
    """A rank takes no part any more. The world goes on."""


class LostMemberError(HorovodInternalError, ProcessSetError):
    """The process set has lost a member. The world goes on."""


class DisagreementError(HorovodInternalError, InvalidArgumentError):
    """The ranks disagree on what a collective is: its type, shape, root, or other arguments."""


class UnsupportedTypeError(InvalidArgumentError, TypeError):
    """hvd cannot send elements of this type."""


class HostsUpdatedInterrupt(RuntimeError):
    """No error: at a commit all members left this world for another one."""

    skip_sync: bool = False  # of Horovod; hvd sends only what somebody lacks
    code: int = 0
    rank: int = -1
    host: str = ""
    cause: str = ""


class LeftError(HvdError):
    """The job goes on without this worker."""


class StateLostError(HvdError):
    """Every worker that held the committed state is gone."""


class StateDivergedError(HvdError):
    """The states of the ranks differ at a commit."""


class RunError(HvdError):
    """The job of ``hvd.run()`` failed. The text says how, with the last lines of its errors."""


class InternalError(HvdError):
    """A bug in hvd, or in something below it."""


class HvdMemoryError(HvdError, MemoryError):
    """There is not enough memory."""


def as_disagreement(error: InvalidArgumentError) -> InvalidArgumentError:
    """Turns an error that only the ranks together can find into a ``DisagreementError``."""
    if type(error) is not InvalidArgumentError:
        return error
    other = DisagreementError(str(error))
    other.code, other.rank, other.host, other.cause = (
        error.code,
        error.rank,
        error.host,
        error.cause,
    )
    return other


@contextlib.contextmanager
def disagreements() -> Iterator[None]:
    """Around a call that both starts a collective and waits for it."""
    try:
        yield
    except InvalidArgumentError as error:
        raise as_disagreement(error) if is_found_together(str(error)) else error from None


def is_found_together(text: str) -> bool:
    """Whether only the ranks together can find it, which the text alone tells."""
    return text.startswith("Mismatched ") or ", has joined, and " in text


OK = 0
INVALID_ARGUMENT = -7
COLLECTIVE = -9
HOSTS_UPDATED = -14
LEFT = -15

_CLASSES: dict[int, type[BaseException]] = {
    -1: NotInitializedError,
    -2: NotDynamicError,
    -3: UnknownProcessSetError,
    -4: NotAMemberError,
    -5: ShutDownError,
    -6: DuplicateProcessSetError,
    INVALID_ARGUMENT: InvalidArgumentError,
    -8: InitError,
    COLLECTIVE: HorovodInternalError,
    -10: InternalError,
    -11: HvdMemoryError,
    -12: InvalidArgumentError,
    -13: LostMemberError,
    HOSTS_UPDATED: HostsUpdatedInterrupt,
    LEFT: LeftError,
    -16: StateLostError,
    -17: StateDivergedError,
}
_core.set_errors(_CLASSES)


def failure_of(code: int, text: str, rank: int, host: str, cause: str) -> BaseException:
    """The exception of a failure that a library of a framework has put into words."""
    error: Any = _CLASSES.get(code, HvdError)(text)
    error.code, error.rank, error.host, error.cause = code, rank, host, cause
    if isinstance(error, InvalidArgumentError) and is_found_together(text):
        return as_disagreement(error)
    return error
