"""The world and this worker's place in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Union

from . import _core
from .errors import disagreements


class ProcessSet:
    """Some of the world's ranks, among which a collective can run.

    One that is given to ``init()`` or ``add_process_set()`` gets its ``process_set_id`` there.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._given_ranks = sorted(set(ranks))
        self._added_in: int | None = None  # the generation, of a set that init() did not make
        self.process_set_id: int | None = None

    @property
    def ranks(self) -> list[int]:
        """The members, by their rank in this world; before it has a number, those it is made of."""
        if self.process_set_id is None:
            return list(self._given_ranks)
        return _core.process_set_ranks(self.process_set_id)

    def size(self) -> int:
        """The number of members."""
        return _core.process_set_size(number_of(self))

    def rank(self) -> int:
        """This worker's rank in the set. Raises NotAMemberError if it has none."""
        return _core.process_set_rank(number_of(self))

    def included(self) -> bool:
        """Whether this worker is a member."""
        return bool(_core.process_set_included(number_of(self)))

    def __repr__(self) -> str:
        # Its ranks are those of a world, for which a worker that joins would have to wait.
        if self.process_set_id is None:
            return f"ProcessSet(ranks={self._given_ranks})"
        return f"ProcessSet(process_set_id={self.process_set_id})"


def _whole_world() -> ProcessSet:
    whole = ProcessSet([])
    whole.process_set_id = 0
    return whole


global_process_set: ProcessSet = _whole_world()
_given_sets: list[ProcessSet] = []
_sets_shrink = False  # as init() was told


def number_of(process_set: ProcessSet) -> int:
    """The number under which hvd knows it. Raises ValueError before it has one."""
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set!r} is given to neither init() nor add_process_set()")
    return process_set.process_set_id


def init(
    comm: Any = None,
    process_sets: Union[str, Sequence[Union[ProcessSet, Sequence[int]]], None] = None,
    *,
    process_sets_shrink: bool = False,
) -> None:
    """Forms the world with the other workers of the job; blocks until it stands.

    Without ``hvdrun`` the world consists of this process alone. A second call does nothing; its
    process sets and ``process_sets_shrink``, if given, must be those of the first one.

    Args:
        comm: of Horovod's signature, and None: process sets take the place of communicators.
        process_sets: process sets that exist from the start (each a ``ProcessSet`` or a list of
            ranks). Others can always be added later, also without Horovod's "dynamic".
        process_sets_shrink: in an elastic job, sets that have lost a member shrink, where they
            would be LostMemberError else. ``add_process_set()`` may say otherwise of one.

    Raises:
        InitError: the world could not be formed.
        InvalidArgumentError: a process set is wrong, or the world was made with others.
    """
    global _sets_shrink
    if comm is not None:
        raise ValueError("hvd.init() takes no communicator or list of ranks: use process_sets")
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets is a list or "dynamic", not "{process_sets}"')
        process_sets = None
    sets = [
        given if isinstance(given, ProcessSet) else ProcessSet(given)
        for given in process_sets or []
    ]
    if is_initialized() and not sets and not process_sets_shrink:
        return
    once: list[list[int]] = []  # as in Horovod, a set may be given twice
    for given in sets:
        if given._given_ranks not in once:
            once.append(given._given_ranks)
    # Always dynamic, which costs nothing: torch's new_group() adds sets, also in a program that has
    # not thought of it.
    _core.init(True, process_sets_shrink, once)
    _sets_shrink = process_sets_shrink
    for given in sets:
        given.process_set_id = 1 + once.index(given._given_ranks)
        if given not in _given_sets:
            _given_sets.append(given)


def shutdown() -> None:
    """Takes no part in the job any more; ``init()`` may follow. Without a world it does nothing."""
    _core.shutdown()
    for given in _given_sets:
        given.process_set_id = None
    _given_sets.clear()


def is_initialized() -> bool:
    """Whether there is a world."""
    return bool(_core.is_initialized())


def rank() -> int:
    """This worker's rank in the world, from 0."""
    return _core.rank()


def size() -> int:
    """The number of workers in the world."""
    return _core.size()


def local_rank() -> int:
    """The rank among the workers of this host: which GPU is this worker's."""
    return _core.local_rank()


def local_size() -> int:
    """The number of workers on this host."""
    return _core.local_size()


def cross_rank() -> int:
    """The rank among the workers of this local rank, of which each host has one."""
    return _core.cross_rank()


def cross_size() -> int:
    """The number of workers of this local rank."""
    return _core.cross_size()


def is_homogeneous() -> bool:
    """Whether all hosts have equally many workers."""
    return bool(_core.is_homogeneous())


def generation() -> int:
    """The number of the world: it grows with each one that an elastic job forms."""
    return _core.generation()


_entered_place: tuple[int, int, int] | None = None


def note_entered_world() -> None:
    """For an elastic job, whose environment knows its first world alone."""
    global _entered_place
    _entered_place = generation(), rank(), size()


def last_place() -> tuple[int, int, int]:
    """Generation, rank and size in this world, or after ``shutdown()`` in the one before."""
    if is_initialized():
        return generation(), rank(), size()
    if _entered_place is not None:
        return _entered_place
    return 1, int(os.environ.get("HVD_RANK", "0")), int(os.environ.get("HVD_SIZE", "1"))


def add_process_set(
    process_set: ProcessSet | Sequence[int],
    *,
    shrink: bool | None = None,
    by_members: bool = False,
) -> ProcessSet:
    """Adds a process set. Called by all ranks of the world, each with the same ranks.

    Members may also add one by themselves, and remove it so: the other ranks do not call.

    In an elastic job each world may add it again, of the ranks that it was made of. A set of an
    earlier world that consists of these ranks now is taken up.

    Args:
        process_set: the ranks, or a ``ProcessSet`` of them.
        shrink: in an elastic job, whether it shrinks when it loses a member, where it would be
            LostMemberError else; None: as ``init(process_sets_shrink=...)`` says.
        by_members: the members alone call this, and ``remove_process_set()``. The set does not
            shrink, and there may be others of the same ranks. Members that name different ranks
            wait for each other.

    Raises:
        ValueError: this ``ProcessSet`` is added already, in this world or by ``init()``; or
            ``shrink`` is true of a set that is added by its members.
        NotAMemberError: this rank is not one of the members, who alone add it.
        NotDynamicError: code in another language has formed the world, without dynamic sets.
        DuplicateProcessSetError: these ranks are a process set already.
        DisagreementError: the ranks of the world give different ranks.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    here = generation()
    if added.process_set_id is not None and added._added_in in (None, here):
        raise ValueError(f"{added!r} is added already")
    if by_members and shrink:
        raise ValueError("a process set that its members add does not shrink")
    shrinks = _sets_shrink if shrink is None else shrink
    with disagreements():
        added.process_set_id = _core.add_process_set(added._given_ranks, shrinks, by_members)
    added._added_in = here
    if added not in _given_sets:
        _given_sets.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. Called by all ranks, or by the members who alone have added it.

    False: it cannot be removed, or is not there.
    """
    if process_set.process_set_id in (None, 0):
        return False
    with disagreements():
        _core.remove_process_set(process_set.process_set_id)
    process_set.process_set_id = None
    _given_sets[:] = [given for given in _given_sets if given is not process_set]
    return True


def process_set_ids() -> list[int]:
    """The numbers of all process sets; 0 is the whole world."""
    return _core.process_sets()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Records what all ranks do into a file on rank 0's host, in Chrome's trace format.

    Called by rank 0; the calls of other ranks change nothing. While one is being recorded a call
    has no effect but a warning in the log.
    """
    _core.start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the recording, if there is one; returns when the file is complete."""
    _core.stop_timeline()


def mpi_threads_supported() -> bool:
    """Whether this world uses MPI, and MPI takes calls from several threads at the same time.

    Raises NotInitializedError before ``init()``.
    """
    return bool(_core.mpi_threads_supported())


def mpi_built() -> bool:
    """Whether this installation has a module for Open MPI or MPICH."""
    return bool(_core.mpi_built())


def mpi_enabled() -> bool:
    """Whether this world uses MPI for tensors of the host (``HVD_CPU_OPERATIONS=mpi``)."""
    return bool(_core.mpi_enabled())


def gloo_built() -> bool:
    """True: collectives between CPUs are always there."""
    return True


def gloo_enabled() -> bool:
    """True: collectives between CPUs are always there."""
    return True


def nccl_built() -> int:
    """1 if this worker can use the module for GPUs, else 0."""
    return int(cuda_built())


def cuda_built() -> bool:
    """Whether hvd can use a GPU here."""
    return _core.cuda_device_count() > 0


def ddl_built() -> bool:
    """False: hvd does not have it."""
    return False


def ccl_built() -> bool:
    """Whether this installation has the module for oneCCL (``HVD_CPU_OPERATIONS=ccl``)."""
    return bool(_core.ccl_built())


def rocm_built() -> bool:
    """False: hvd does not have it."""
    return False


def sycl_built() -> bool:
    """False: hvd does not have it."""
    return False
