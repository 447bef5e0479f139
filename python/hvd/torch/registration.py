"""How ``torch.distributed`` comes to the backend ``"hvd"``, and its ranks to each other.

``register()`` makes it known. torch's own calls are wrapped where they would need what hvdrun does
not give, a port that is chosen beforehand, or would not notice that a rank is lost.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from hvd import basics
from hvd._work import Handle, Kind, start
from hvd.basics import global_process_set
from hvd.errors import HorovodInternalError, HvdError
from hvd.objects import allgather_object, broadcast_object

from . import reconfigure
from .process_group import NAME, c10d, create, init_hvd, may_be_a_backend, set_of

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

    Returns when all ranks have it: until then rank 0 must not put it away.
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
    # If rank 0 is lost meanwhile, this says so.
    for rank, text in enumerate(allgather_object(failure, "c10d.store.found")):
        if text is not None:
            raise RuntimeError(f"rank {rank} has no store for torch.distributed: {text}")
    return store


def _check_is_only_backend(backend: str) -> None:
    names = {one.rsplit(":", 1)[-1].strip() for one in backend.lower().split(",")}
    if NAME in names and len(names) > 1:
        raise ValueError(
            f'a group with enable_reconfigure=True has one backend alone, not "{backend}"'
        )


def _use_own_store() -> None:
    """Lets ``init_process_group("hvd")`` do without ``MASTER_PORT``, as often as it is called."""
    init = distributed_c10d.init_process_group

    @functools.wraps(init)
    def wrapper(backend: Any = None, init_method: Any = None, *args: Any, **arguments: Any) -> Any:
        if arguments.get("enable_reconfigure") and NAME in str(backend).lower():
            _check_is_only_backend(str(backend))
        if (
            NAME not in str(backend).lower().split(":")
            or args
            or init_method not in (None, "env://")
            or arguments.get("store") is not None
            or dist.is_initialized()
        ):
            return init(backend, init_method, *args, **arguments)
        init_hvd()
        if hasattr(dist.Backend, "backend_capability") and not torch.cuda.is_available():
            # With CUDA's devices torch asks for their streams, also where there are none.
            dist.Backend.backend_capability[NAME] = ["cpu"]
        arguments.update(rank=basics.rank(), world_size=basics.size())
        if may_be_a_backend and arguments.get("enable_reconfigure"):
            # The other ranks are not asked: they may have their group already.
            arguments.update(store=reconfigure.make_store())
            return init(backend, None, **arguments)
        timeout = arguments.get("timeout") or distributed_c10d.default_pg_timeout
        arguments.update(store=_make_store(timeout))
        with ranks_that_meet():
            return init(backend, None, **arguments)

    distributed_c10d.init_process_group = dist.init_process_group = wrapper


_BEGUN = "c10d.begun"


def _meet() -> None:
    """Returns when all ranks of the world are here."""
    Handle(start(Kind.BARRIER, None, process_set=global_process_set, name=_BEGUN), _nothing).wait()


def _nothing(_: Any) -> None:
    return None


@contextlib.contextmanager
def ranks_that_meet() -> Iterator[None]:
    """Around a call that looks at the store: until all ranks are done rank 0 must keep it.

    If the world has failed, that is the error.
    """
    try:
        yield
    except HvdError:
        raise
    except RuntimeError as error:
        _raise_loss(error)
        raise
    _meet()


def _raise_loss(error: RuntimeError) -> None:
    """Raises the failure of the world, if it was one that torch has found as another error.

    A rank whose call has succeeded meets this one at once. One that torch keeps waiting does not,
    so there is a limit.
    """
    done = threading.Event()
    handle = Handle(
        start(Kind.BARRIER, None, process_set=global_process_set, name=_BEGUN), _nothing
    )
    handle.add_done_callback(lambda _: done.set())
    if done.wait(_CONNECT_TIMEOUT.total_seconds()):
        try:
            handle.wait()
        except HorovodInternalError as loss:
            raise loss from error


def _use_own_barrier() -> None:
    """Lets torch's calls that make groups wait for the other ranks by hvd.

    torch asks the store of rank 0, and does not notice that a rank is lost.
    """
    module: Any = distributed_c10d
    barrier = getattr(module, "_store_based_barrier", None)
    if barrier is None:
        return
    signature = inspect.signature(barrier)

    @functools.wraps(barrier)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        is_hvd = dist.get_backend() == NAME and not isinstance(dist.group.WORLD, reconfigure.Group)
        if is_hvd and given.get("rendezvous_count", basics.size()) == basics.size():
            _meet()
        else:
            barrier(*args, **kwargs)

    module._store_based_barrier = wrapper


def _announce_groups() -> None:
    """Lets the ranks outside of a new group hear of it, too.

    A process set is made by all ranks of the world. All of them call ``new_group``, but a backend
    is made by the members alone.
    """
    make_group: Any = distributed_c10d._new_process_group_helper

    def wrapper(
        size: int, rank: int, ranks: Sequence[int], backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if NAME in str(backend).lower() and ranks and basics.is_initialized():
            if len(set(ranks)) != len(ranks):
                raise ValueError(f"new_group: a rank is named twice in ranks={list(ranks)}")
            set_of(ranks)
        return make_group(size, rank, ranks, backend, *args, **kwargs)

    module: Any = distributed_c10d
    module._new_process_group_helper = wrapper


def register() -> None:
    """Makes the backend known to torch; again: nothing."""
    if not dist.is_available() or hasattr(dist.Backend, NAME.upper()):
        return
    arguments: dict[str, Any] = {"extended_api": True}
    if hasattr(dist.Backend, "backend_capability"):
        arguments["devices"] = ["cpu", "cuda"]
    dist.Backend.register_backend(NAME, create, **arguments)
    _announce_groups()
    _use_own_barrier()
    _use_own_store()
