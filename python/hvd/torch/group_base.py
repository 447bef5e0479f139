"""The base of a group of ``torch.distributed`` over hvd: place, world, the names of its calls.

The operations of ``torch.distributed`` have no names: all ranks of a group call them in the same
order, by which they are matched. Names repeat after 256 calls, so that hvd knows them again. Sends
and receives are matched by their two ranks, their tag and their order.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hvd import basics
from hvd._work import Handle
from hvd.basics import ProcessSet, global_process_set
from hvd.errors import DisagreementError, HorovodInternalError

from . import reconfigure
from .rank_order import RankOrder
from .work import All, Done, HvdWork, WorkTimeoutError, seconds_of

NAME = "hvd"
_MONITORED = -1  # the tag of a monitored barrier; those of programs are not negative
_REPEAT = 256  # calls of a kind after which names begin anew

_torch: Any = torch  # its private parts have no types
c10d = _torch._C._distributed_c10d
# Python may define a Backend from torch 2.15 on, and a whole ProcessGroup before.
may_be_a_backend = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)
_Base: Any = c10d.Backend if may_be_a_backend else c10d.ProcessGroup


_DEFAULT_TIMEOUT = torch.distributed.distributed_c10d.default_pg_timeout
_groups_made: dict[tuple[int, int | None], int] = {}


_sets: dict[tuple[int, ...], ProcessSet] = {}


def set_of(ranks: Sequence[int]) -> ProcessSet:
    """The process set of these ranks, which they add without the others where it is a new one."""
    if len(ranks) == basics.size():
        return global_process_set
    key = basics.generation(), *sorted(ranks)
    known = _sets.get(key)
    if known is None or known.process_set_id is None:
        known = _sets[key] = basics.add_process_set(sorted(ranks), by_members=True)
    return known


def _number_of_group(process_set: ProcessSet) -> int:
    """Tells groups of the same ranks from each other: a number that all members agree on."""
    key = basics.generation(), process_set.process_set_id
    number = _groups_made.get(key, 0)
    _groups_made[key] = number + 1
    return number


class GroupBase(_Base):
    """A group without its operations.

    It belongs to one world, unless ``may_change``: then it has no world at first, and
    ``reconfigure()`` puts it into the one that there is.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        ranks: Sequence[int],
        process_set: ProcessSet,
        may_change: bool = False,
        timeout: datetime.timedelta | None = None,
    ) -> None:
        super().__init__(rank, size)
        self._may_change = may_change
        self.set_timeout(timeout)
        self._generation = -1  # of its world
        self._sequence = 0
        self._group: weakref.ref[Any] | None = None
        self._uuids: set[int] = set()
        self._failures = reconfigure.Failures() if may_change else None
        self._enter(rank, size, ranks, process_set)
        if not may_change:
            self._begin()
        # Old versions of torch drop the Python part of a Work that only C++ holds. DDP, which is
        # such a holder, asks for the future at once.
        self._recent: collections.deque[HvdWork] = collections.deque(maxlen=8)

    # --- worlds ---

    def _enter(self, rank: int, size: int, ranks: Sequence[int], process_set: ProcessSet) -> None:
        self._own_rank = rank
        self._own_size = size
        self._ranks = list(ranks)
        self._order = RankOrder(ranks)
        self._set = process_set

    def _begin(self) -> None:
        """Calls can be made from now on, in this world."""
        self._generation = basics.generation()
        self._number = _number_of_group(self._set)
        self._calls: dict[str, int] = {}
        self._sequence = 0  # of collectives that have begun
        self._handles: dict[str, weakref.ref[Handle[Any]]] = {}

    def _check_world(self) -> None:
        now = basics.generation()
        if self._generation == now:
            return
        if self._generation == -1:
            raise RuntimeError(
                "this process group waits for its first reconfigure(), since it was made with "
                "enable_reconfigure=True"
            )
        remedy = "reconfigure() it" if self._may_change else "make it again"
        raise RuntimeError(
            f"this process group belongs to world {self._generation}, but this is world {now}: "
            f"{remedy}"
        )

    def _name(self, kind: str) -> str:
        self._check_world()
        number = self._calls.get(kind, 0)
        self._calls[kind] = (number + 1) % _REPEAT
        self._sequence += 1
        name = f"c10d.{self._set.process_set_id}.{self._number}.{kind}.{number}"
        earlier = self._handles.pop(name, lambda: None)()
        if earlier is not None and not earlier.ready():
            # So many are in flight. All ranks have begun it, or will without waiting for this call.
            with contextlib.suppress(HorovodInternalError, DisagreementError):
                earlier.wait()
        return name

    def _work(
        self,
        name: str,
        handle: Handle[Any],
        result: Any,
        finish: Callable[[Any], Any] | None = None,
        failures: reconfigure.Failures | None = None,
    ) -> HvdWork:
        self._handles[name] = weakref.ref(handle)
        return self._kept(HvdWork(handle, result, finish, failures), name)

    def set_timeout(self, timeout: datetime.timedelta | None) -> None:
        """Sets the limit of time of each later call. torch's own default is none for hvd."""
        self._limit = None if timeout == _DEFAULT_TIMEOUT else seconds_of(timeout)

    def _kept(self, work: HvdWork, name: str) -> HvdWork:
        work.name, work.limit = name, self._limit
        if not may_be_a_backend:
            self._recent.append(work)
        return work

    def _all_of(self, works: Sequence[HvdWork], result: Any) -> HvdWork:
        return self._kept(HvdWork(All(works), result), works[0].name if works else "")

    # Each of torch's own properties asks Python for the attribute of its name, and so itself,
    # without end. So all that torch asks for have a value here.
    supports_coalescing = False
    supports_shrinking = False
    supports_window = False
    _supports_time_estimate = False

    @property
    def supports_reconfigure(self) -> bool:
        return self._may_change

    @property
    def supports_splitting(self) -> bool:
        return not self._may_change

    # torch calls these of a backend that can be split, if the group is bound to a device.

    def eager_connect_single_device(self, device: Any) -> None:
        pass

    def perform_nocolor_split(self, device: Any) -> None:
        pass

    @property
    def options(self) -> Any:
        return c10d.Backend.Options(NAME)

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def rank(self) -> int:
        return self._own_rank

    def size(self) -> int:
        return self._own_size

    def split(self, ranks: Sequence[int], timeout: datetime.timedelta | None) -> GroupBase | None:
        """A group of these ranks of this one, in their order. None: this rank is not one of them.

        ``timeout``: its limit of time; None: that of this group.
        """
        self._check_world()
        if self._own_rank not in ranks:
            return None
        members = [self._ranks[rank] for rank in ranks]
        place = list(ranks).index(self._own_rank)
        part = type(self)(place, len(members), members, set_of(members), timeout=timeout)
        if timeout is None:
            part._limit = self._limit
        return part

    # --- a barrier that knows who is late ---

    def monitored_barrier(
        self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Waits until all ranks of the group are here.

        Raises:
            WorkTimeoutError: some have not come in time. All of them are named, also without
                ``wait_all_ranks``. Rank 0 of the group knows which; for its answer the others wait
                twice as long.
        """
        del wait_all_ranks
        limit = seconds_of(timeout) or self._limit or threading.TIMEOUT_MAX / 4
        is_late = torch.zeros(self._own_size, dtype=torch.bool)
        if self._own_rank == 0:
            deadline = time.monotonic() + limit
            arrivals = {
                rank: self.recv([torch.zeros(1)], rank, _MONITORED)
                for rank in range(1, self._own_size)
            }
            for rank, arrival in arrivals.items():
                is_late[rank] = not arrival.wait_until(deadline)
            answers = [self.send([is_late], rank, _MONITORED) for rank in arrivals]
            for rank, answer in enumerate(answers, 1):
                if not is_late[rank]:
                    answer.wait()
        else:
            self.send([torch.zeros(1)], 0, _MONITORED)
            answered = torch.zeros_like(is_late)
            answer = self.recv([answered], 0, _MONITORED)
            if answer.wait_until(time.monotonic() + 2 * limit):
                answer.wait()
                is_late = answered
            else:
                is_late[0] = True
        late = ", ".join(f"rank {rank}" for rank in is_late.nonzero().flatten().tolist())
        if late:
            raise WorkTimeoutError(
                f"monitored_barrier(): {late} of the group did not come within {limit:g} s"
            )

    # --- another world ---

    def belongs_to(self, group: weakref.ref[Any]) -> None:
        """For ``torch_group.Group``: the group that torch knows."""
        self._group = group

    def _check_may_change(self) -> None:
        if not self._may_change:
            raise RuntimeError(
                "this process group belongs to one world for good; "
                'init_process_group("hvd", enable_reconfigure=True) makes one that does not'
            )

    def get_reconfigure_handle(self) -> str:
        self._check_may_change()
        return reconfigure.this_member().handle()

    def reconfigure(self, opts: Any) -> Any:
        """Puts the group into the world that there is. All its members call it together.

        ``opts.hints`` are not looked at.
        """
        self._check_may_change()
        is_used = opts.uuid in self._uuids
        self._uuids.add(opts.uuid)
        reconfigure.agree(opts, is_used)
        size = basics.size()
        self._enter(basics.rank(), size, range(size), global_process_set)
        self._begin()
        reconfigure.note_new_members(self._group and self._group(), size)
        return HvdWork(Done(), [])

    def _name_between(self, sender: int, receiver: int, tag: int) -> str:
        self._check_world()
        pair = f"{sender}.{receiver}.{tag}"
        number = self._calls.get(pair, 0)
        self._calls[pair] = number + 1
        # These names do not come again: any number of receives may wait for their senders.
        return f"c10d.{self._set.process_set_id}.{self._number}.{tag}.noname.{number}"
