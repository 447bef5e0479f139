"""Registers the backend ``"hvd"`` with ``torch.distributed``, and lets its ranks meet by hvd.

Once a program asks for the backend, calls inside torch are wrapped where they would need a port
that is chosen beforehand, which hvdrun does not give, or would not notice that a rank is lost. For
groups of other backends they do what they did.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from hvd import basics
from hvd._work import Handle, Kind, start
from hvd.basics import global_process_set
from hvd.errors import HorovodInternalError
from hvd.objects import allgather_object, broadcast_object

from . import checks, reconfigure
from .group_base import NAME, c10d
from .make_group import backend_names, create

_CONNECT_TIMEOUT = datetime.timedelta(seconds=30)  # to a store that listens already


def _address_of_this_host(rendezvous: Sequence[str | None]) -> str:
    """Where the other ranks reach rank 0, which calls this.

    ``MASTER_ADDR`` is that of the first rank 0, whose host may be lost.

    Args:
        rendezvous: where each rank reaches hvdrun.
    """
    given = os.environ.get("MASTER_ADDR", "localhost")
    own = rendezvous[0]
    if own is None or os.environ.get("HVD_RANK") == "0":
        return given
    if not _is_loopback(own):
        # The interface by which this host reaches hvdrun is one by which others reach it.
        family, *_, address = socket.getaddrinfo(own, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    # hvdrun runs on this host.
    return next((one for one in rendezvous if one and not _is_loopback(one)), "localhost")


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")


def _make_store(timeout: datetime.timedelta) -> Any:
    """A store of rank 0, on a port that is free, instead of one that was chosen beforehand.

    Returns when all ranks are connected: until then rank 0 must keep it.
    """
    store = place = failure = None
    rendezvous = allgather_object(os.environ.get("HVD_RENDEZVOUS_ADDR"), "c10d.rendezvous")
    # A rank that fails tells the others, who would wait for it.
    try:
        if basics.rank() == 0:
            address = _address_of_this_host(rendezvous)
            store = c10d.TCPStore(address, 0, None, True, timeout, wait_for_workers=False)
            place = address, store.port
    except (RuntimeError, OSError) as error:
        failure = str(error)
    place = broadcast_object(place, 0, "c10d.store")
    try:
        if store is None and place is not None:
            connect_timeout = min(timeout, _CONNECT_TIMEOUT)
            store = c10d.TCPStore(*place, None, False, connect_timeout)
            store.set_timeout(timeout)
    except (RuntimeError, OSError) as error:
        failure = str(error)
    # If rank 0 is lost meanwhile, this call raises HorovodInternalError.
    for rank, text in enumerate(allgather_object(failure, "c10d.store.found")):
        if text is not None:
            raise RuntimeError(f"rank {rank} has no store for torch.distributed: {text}")
    return store


def _check_is_only_backend(backend: str) -> None:
    if len(backend_names(backend)) > 1:
        raise ValueError(
            f'a group with enable_reconfigure=True has one backend alone, not "{backend}"'
        )


def _place_in_environment() -> dict[str, int]:
    """RANK and WORLD_SIZE, which ``env://`` reads, of a launcher that hvd does not know.

    They count in a world of one that hvdrun has not made, unless it is meant to be one.
    """
    if not checks.is_alone() or os.environ.get("HVD_ALLOW_SINGLE") == "1":
        return {}
    names = {"rank": "RANK", "world_size": "WORLD_SIZE"}
    return {key: int(os.environ[name]) for key, name in names.items() if name in os.environ}


def _check_place(given: dict[str, Any]) -> None:
    """Raises ValueError unless rank and size are what the program, or its launcher, has named."""
    own = {"rank": basics.rank(), "world_size": basics.size()}
    expected = own | _place_in_environment()
    named = {key: expected[key] if given.get(key, -1) == -1 else given[key] for key in own}
    # In an elastic job the environment has the places in the first world.
    if named != own and "HVD_ELASTIC" not in os.environ:
        raise checks.wrong_place(named["rank"], named["world_size"])


def _meet_by_hvd() -> None:
    """Lets ``init_process_group("hvd")`` do without ``MASTER_PORT``, as often as it is called."""
    module: Any = distributed_c10d
    of_torch = module.rendezvous

    @functools.wraps(of_torch)
    def rendezvous(
        url: str, rank: int = -1, world_size: int = -1, **arguments: Any
    ) -> Iterator[tuple[Any, int, int]]:
        # init_process_group() does not pass on which backend it is for.
        caller = sys._getframe(1).f_locals
        backend = caller.get("backend")
        if url != "env://" or NAME not in backend_names(backend):
            return of_torch(url, rank, world_size, **arguments)
        may_change = caller.get("enable_reconfigure", False)
        if may_change:
            _check_is_only_backend(str(backend))
        basics.init()
        if hasattr(dist.Backend, "backend_capability") and not torch.cuda.is_available():
            # With CUDA's devices torch asks for their streams, also where there are none.
            dist.Backend.backend_capability[NAME] = ["cpu"]
        _check_place({"rank": rank, "world_size": world_size})
        if may_change:
            # The other ranks are not asked: they may have their group already.
            store = reconfigure.make_store()
        else:
            store = _make_store(arguments.get("timeout") or module.default_pg_timeout)
        return iter([(store, basics.rank(), basics.size())])

    module.rendezvous = rendezvous


# The barrier that this rank has begun and not finished, and its generation.
_begun: tuple[int, Handle[None]] | None = None


def _begin_barrier() -> Handle[None]:
    global _begun
    generation = basics.generation()
    if _begun is None or _begun[0] != generation:
        work = start(Kind.BARRIER, None, process_set=global_process_set, name="c10d.begun")
        _begun = generation, Handle(work, lambda _: None)
    return _begun[1]


def _barrier() -> None:
    """Returns when all ranks of the world are here."""
    global _begun
    try:
        _begin_barrier().wait()
    finally:
        _begun = None


def _barrier_after(error: Exception) -> None:
    """Raises the failure of the world, if torch has seen it as this error.

    Ranks whose call has succeeded meet this one at once. Those that wait for it elsewhere do not,
    so there is a limit.
    """
    done = threading.Event()
    _begin_barrier().add_done_callback(lambda _: done.set())
    if done.wait(_CONNECT_TIMEOUT.total_seconds()):
        try:
            _barrier()
        except HorovodInternalError as loss:
            raise loss from error


@contextlib.contextmanager
def barrier_afterwards() -> Iterator[None]:
    """For a call that uses rank 0's store: rank 0 keeps it until all ranks have made the call.

    Each rank meets the others once, also one whose call has failed. If the world has failed, which
    torch sees as a broken connection, that is the error.
    """
    try:
        yield
    except HorovodInternalError:
        raise
    except Exception as error:
        _barrier_after(error)
        raise
    _barrier()


_has_met = False  # the ranks, at the end of the call that made the group of torch made last


def _meet_after_making_groups() -> None:
    """Lets torch's calls that make groups wait for the other ranks by hvd.

    torch asks the store of rank 0, and does not notice that a rank is lost.
    """
    module: Any = distributed_c10d
    make_group = module._new_process_group_helper

    @functools.wraps(make_group)
    def wrapper(
        size: int, rank: int, ranks: Sequence[int], backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        global _has_met
        _has_met = False
        is_hvd = NAME in backend_names(backend)
        if is_hvd and len(set(ranks)) != len(ranks):
            raise ValueError(f"new_group: a rank is named twice in ranks={list(ranks)}")
        is_whole = not ranks and not kwargs.get("enable_reconfigure")
        with barrier_afterwards() if is_hvd and is_whole else contextlib.nullcontext():
            group = make_group(size, rank, ranks, backend, *args, **kwargs)
        _has_met = is_hvd and is_whole
        return group

    module._new_process_group_helper = wrapper


def _replace_store_barrier() -> None:
    """The same of the barrier that torch itself puts after a group was made."""
    module: Any = distributed_c10d
    barrier = getattr(module, "_store_based_barrier", None)
    if barrier is None:
        return
    signature = inspect.signature(barrier)

    @functools.wraps(barrier)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        world = dist.group.WORLD
        if dist.get_backend() != NAME or getattr(world, "supports_reconfigure", False):
            barrier(*args, **kwargs)
        elif given.get("rendezvous_count", basics.size()) == basics.size():
            if not _has_met:
                _barrier()
        else:  # use_local_synchronization
            names = module._world.pg_names
            group = next(one for one, name in names.items() if name == given["group_name"])
            if dist.get_backend(group) == NAME:
                group.barrier().wait()
            else:
                barrier(*args, **kwargs)

    module._store_based_barrier = wrapper


class _Name:
    """``torch.distributed.Backend.HVD``: the name of the backend.

    torch reads it when a program asks for the backend. Until then all of torch is as it was. The
    functions that change then are found by torch itself, so that it does not matter when a program
    has imported its own.
    """

    def __init__(self) -> None:
        self._was_read = False

    def __get__(self, instance: Any, owner: Any) -> str:
        if not self._was_read:
            self._was_read = True
            _meet_by_hvd()
            _meet_after_making_groups()
            _replace_store_barrier()
        return NAME


def register() -> None:
    """Registers the backend with torch. A second call does nothing."""
    if not dist.is_available() or NAME.upper() in vars(dist.Backend):
        return
    arguments: dict[str, Any] = {"extended_api": True}
    if hasattr(dist.Backend, "backend_capability"):
        arguments["devices"] = ["cpu", "cuda"]
    dist.Backend.register_backend(NAME, create, **arguments)
    setattr(dist.Backend, NAME.upper(), _Name())
