"""The group that programs see from torch 2.15 on, around the backend that is written in Python.

torch would make a group of its own. It puts each work of the backend into one of C++, which asks
its half in Python for ``wait()`` and ``get_future()`` alone, and has other answers of its own: that
it is not completed, and successful. This group gives the half in Python itself.
"""

from __future__ import annotations

import datetime
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .work import half_of

# Which parts of torch have types depends on its version.
_torch: Any = torch
_dist: Any = dist
_c10d: Any = _torch._C._distributed_c10d


class Group(_c10d.ProcessGroup):
    """A group over one backend of hvd, for all devices.

    Its rank and size are those that the backend has now. C++ asks a ProcessGroup in Python for
    them. It does not ask a Backend in Python, whose part in C++ keeps for ever what it was made
    with.
    """

    def __init__(self, backend: Any, store: Any, device: Any) -> None:
        super().__init__(store, backend.rank(), backend.size())
        self._backend = backend
        kind = _dist.Backend.backend_type_map.get(
            backend.name(), _c10d.ProcessGroup.BackendType.CUSTOM
        )
        if device is not None:
            self.bound_device_id = device
        for device_type in _dist.Backend.backend_capability[backend.name()]:
            self._register_backend(torch.device(device_type), kind, backend)
        self._set_default_backend(kind)
        backend.belongs_to(weakref.ref(self))

    def getRank(self) -> int:
        return int(self._backend.rank())

    def getSize(self) -> int:
        return int(self._backend.size())

    def monitored_barrier(
        self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        self._backend.monitored_barrier(timeout, wait_all_ranks)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: datetime.timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> Group | None:
        """Makes a group of these ranks of this one. None: this rank is not one of them."""
        del opts, device_types  # there is one backend, without options
        backend = self._backend.split(ranks, timeout)
        if backend is None:
            return None
        store = _dist.PrefixStore(f"{group_name}/", self.get_group_store())
        group = Group(backend, store, self.bound_device_id)
        group._set_group_name(group_name or "")
        group._set_group_desc(group_desc or "")
        return group


def _with_half(name: str) -> Any:
    of_torch = getattr(_c10d.ProcessGroup, name)

    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return half_of(of_torch(self, *arguments, **options))

    # C++ calls this method, too. By the name of the calling function pybind11 knows that it is not
    # to be called again.
    method.__code__ = method.__code__.replace(co_name=name)
    return functools.wraps(of_torch)(method)


# Without the older names of some: C++ would find one of them where it is not to call the newer one.
_COLLECTIVES = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "barrier",
    "broadcast",
    "gather",
    "gather_into_tensor",
    "gather_single",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "scatter",
    "send",
)
for _name in _COLLECTIVES:
    if hasattr(_c10d.ProcessGroup, _name):
        setattr(Group, _name, _with_half(_name))
