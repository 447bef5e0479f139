"""torch's hook for groups whose members change, ``reconfigure``, from torch 2.15 on.

    torch.distributed.init_process_group("hvd", enable_reconfigure=True)

    @hvd.elastic.run
    def train(state):
        handles = hvd.allgather_object(torch.distributed._get_reconfigure_handle())
        torch.distributed._reconfigure(hvd.generation(), handles).wait()

The hook leaves it to the program to find out who the members are. Here hvdrun decides that, and has
formed a world of them before a group can be reconfigured. So the handles name the members of this
world, and all of them call ``reconfigure`` together. Ranks are those of the world.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import socket
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from hvd import basics
from hvd.errors import HorovodInternalError

from .adapter import collectives

# Which parts of torch have types depends on its version.
_torch: Any = torch
_dist: Any = dist
_tables: Any = distributed_c10d

# --- handles -------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A worker in its place in one world, as a handle names it."""

    job: str
    generation: int
    rank: int
    worker: str

    def handle(self) -> str:
        """The handle as text. The worker's name comes last: it may contain colons."""
        return f"hvd:{self.job}:{self.generation}:{self.rank}:{self.worker}"

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.worker}"


def this_member() -> Member:
    """This worker, in the world that there is."""
    worker = os.environ.get("HVD_WORKER") or f"{socket.gethostname()}#{basics.local_rank()}"
    job = os.environ.get("HVD_JOB_ID", "")
    return Member(job, basics.generation(), basics.rank(), worker)


def member_of(handle: str) -> Member:
    """Reads a handle. Raises ValueError if it is not one of hvd."""
    parts = handle.split(":", 4)
    if len(parts) != 5 or parts[0] != "hvd" or not (parts[2] + parts[3]).isdecimal():
        raise ValueError(f'"{handle}" is not a handle of hvd')
    return Member(parts[1], int(parts[2]), int(parts[3]), parts[4])


def find_fault(given: Collection[str], world: Sequence[str]) -> str:
    """The error in the handles that ``reconfigure`` was given, or "".

    Args:
        given: a list assigns ranks by position, a set leaves them to hvd.
        world: the handles of all members, in the order of their ranks.
    """
    if not given:
        return "no handles are given: it takes one of each member"
    try:
        given_members = [member_of(handle) for handle in given]
    except ValueError as error:
        return str(error)
    members = [member_of(handle) for handle in world]
    generation = members[0].generation
    for member in given_members:
        if member in members:
            continue
        if (member.job, member.generation) == (members[0].job, generation):
            return f"{member} is not a member of world {generation}"
        if member.job == members[0].job:
            return (
                f"the handle of {member} is of world {member.generation}, but this is world "
                f"{generation}: exchange new handles in each world"
            )
        return f"the handle of {member} is of another job, {member.job}"
    for member in members:
        if member not in given_members:
            return (
                f"{member} is a member of world {generation}, but its handle is not given: hvdrun "
                "decides who is a member"
            )
    if len(given_members) != len(members):
        return "a handle is given twice"
    if isinstance(given, list) and given_members != members:
        position = next(at for at, one in enumerate(given_members) if one != members[at])
        return (
            f"the handle of {given_members[position]} is at position {position}: ranks are those "
            "that hvdrun has given out; put the handles in their order, or into a set"
        )
    return ""


# --- the members agree ---------------------------------------------------------------------------


def _gather(value: Any, name: str, deadline: float | None) -> list[Any]:
    """The values of all members, in the order of their ranks."""
    packed = np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8)
    handle = collectives.allgather_async(torch.from_numpy(packed.copy()), name)
    if deadline is not None:
        done = threading.Event()
        handle.add_done_callback(lambda _: done.set())
        if not done.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError(
                f"reconfigure: some member of world {basics.generation()} has not called it in time"
            )
    stream = io.BytesIO(handle.wait().numpy().tobytes())
    return [pickle.load(stream) for _ in range(basics.size())]


def agree(opts: Any, is_used: bool) -> None:
    """Returns when all members of the world have called ``reconfigure``, and with good arguments.

    Raises:
        ValueError: the arguments of some rank are wrong; on all ranks.
        TimeoutError: some member has not called it in time.
        HorovodInternalError: a member of this world is lost.
    """
    deadline = None
    if opts.timeout is not None:
        deadline = time.monotonic() + opts.timeout.total_seconds()
    name = f"c10d.reconfigure.{opts.uuid}"
    world = _gather(this_member().handle(), f"{name}.handles", deadline)
    fault = find_fault(opts.handles, world)
    if is_used:
        fault = f"uuid {opts.uuid} was used before: each call takes a new one"
    faults = _gather(fault, f"{name}.faults", deadline)
    if fault:
        raise ValueError(f"reconfigure: {fault}")
    for rank, other in enumerate(faults):
        if other:
            raise ValueError(f"reconfigure failed on {member_of(world[rank])}: {other}")


# --- the group -----------------------------------------------------------------------------------


class _NoStore(_dist.Store):
    """The store of a group that outlives its world, and with it every store of a rank."""

    def _refuse(self, *arguments: Any) -> Any:
        raise NotImplementedError("a group that hvd reconfigures has no store: use its collectives")

    set = get = add = append = check = wait = compare_set = delete_key = _refuse
    multi_get = multi_set = num_keys = list_keys = _refuse


@functools.cache
def make_store() -> Any:
    """The object that stands in for a store, and says why there is none."""
    return _NoStore()


def note_new_members(group: Any, size: int) -> None:
    """Tells torch's tables in Python the ranks of a group of all members of the world."""
    if group in _tables._world.pg_group_ranks:
        _tables._world.pg_group_ranks[group] = {rank: rank for rank in range(size)}


# --- failures in the middle of a backward pass ----------------------------------------------------


class Failures:
    """Brings a failure of the world out of a backward pass, at its end.

    A failure that leaves an allreduce spoils the reducer of DistributedDataParallel: the next pass
    is refused, or divides by the size of the old world. So allreduces of a backward pass seem to
    succeed, the reducer comes to its end, and then the pass raises what has gone wrong.
    """

    def __init__(self) -> None:
        self._watched = -1  # the pass at whose end it is looked
        self._first: HorovodInternalError | None = None

    def watch(self) -> bool:
        """Whether a backward pass runs on this thread; its end will raise what is noted."""
        task = _torch._C._current_graph_task_id()
        if task == -1:
            return False
        if task != self._watched:
            self._watched = task
            self._first = None
            # Callbacks run in the order in which they are queued, and the reducer will queue its
            # own. One that is queued when the first of ours runs comes after it.
            self._queue(lambda: self._queue(self._raise))
        return True

    @staticmethod
    def _queue(callback: Any) -> None:
        _torch.autograd.Variable._execution_engine.queue_callback(callback)

    def note(self, error: HorovodInternalError) -> None:
        """Keeps the first one."""
        self._first = self._first or error

    def _raise(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            raise first
