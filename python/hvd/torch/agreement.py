"""Names on which the ranks agree for the collectives of an optimizer."""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Iterable
from typing import Any

from hvd import basics
from hvd.basics import ProcessSet, number_of
from hvd.objects import allgather_object

# Optimizers by their numbers, in one world and process set, whose gradients have the same names.
_Alike = tuple[int, int, str]
_numbered: dict[_Alike, dict[int, weakref.ref[Any]]] = {}
_locks: dict[_Alike, threading.Lock] = {}


def agree_on_name(
    owner: Any, names: Iterable[str], process_set: ProcessSet, own: Any = None
) -> tuple[str, list[Any]]:
    """A name for an optimizer's collectives in this world, and the ``own`` of all ranks.

    Two optimizers that are alike need two names. How many a rank has made, and which of them Python
    has freed, differs between ranks. So they choose a number that is free on all of them.
    """
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:12]
    key = basics.generation(), number_of(process_set), digest
    for table in _numbered, _locks:
        for other in [one for one in list(table) if one[0] != key[0]]:
            table.pop(other, None)
    with _locks.setdefault(key, threading.Lock()):
        others = {
            number: one
            for number, one in _numbered.get(key, {}).items()
            if one() is not None and one() is not owner
        }
        told = allgather_object((list(others), own), f"gradient.{digest}", process_set)
        taken = {number for numbers, _ in told for number in numbers}
        number = next(one for one in itertools.count() if one not in taken)
        _numbered[key] = {**others, number: weakref.ref(owner)}
    return f"gradient.{digest}.{number}", [one for _, one in told]


class Agreement:
    """``agree_on_name()`` on a thread of its own, for a caller that must not wait for one alone."""

    def __init__(self, owner: Any, names: Iterable[str], process_set: ProcessSet, own: Any) -> None:
        self._result: tuple[str, list[Any]] | None = None
        self._error: BaseException | None = None
        names = list(names)

        def run() -> None:
            try:
                self._result = agree_on_name(owner, names, process_set, own)
            except BaseException as error:  # noqa: BLE001 - raised by result()
                self._error = error

        self._thread = threading.Thread(target=run, name="hvd agreement", daemon=True)
        self._thread.start()

    def is_there(self, timeout: float) -> bool:
        """Whether ``result()`` has something to give, within so many seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self) -> tuple[str, list[Any]]:
        """What ``agree_on_name()`` has given. Raises its error."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


def generation_agreed(told: list[Any], process_set: ProcessSet) -> int:
    """The generation in which all ranks have told each other; -1: some had called ``join()``.

    Another agreement, with the ranks that had, then comes before the next step.
    """
    return basics.generation() if len(told) == process_set.size() else -1
