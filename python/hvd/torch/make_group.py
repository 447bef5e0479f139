"""Makes the groups that torch asks for."""

from __future__ import annotations

import sys
from typing import Any

from hvd import basics
from hvd.basics import global_process_set

from . import checks
from .group_base import NAME, may_be_a_backend, set_of
from .process_group import HvdProcessGroup
from .torch_group import Group


def backend_names(backend: Any) -> set[str]:
    """Of "cpu:hvd,cuda:nccl" they are "hvd" and "nccl"."""
    return {one.rsplit(":", 1)[-1].strip() for one in str(backend).lower().split(",")}


def create(opts: Any, more: Any = None) -> Any:
    """Makes the group that torch asks for."""
    del more
    basics.init()
    may_change = may_be_a_backend and opts.enable_reconfigure
    ranks = list(opts.global_ranks_in_group) or list(range(basics.size()))
    if opts.group_size != len(ranks) or ranks[opts.group_rank] != basics.rank():
        raise checks.wrong_place(opts.group_rank, opts.group_size)
    group_set = global_process_set if may_change else set_of(ranks)
    backend = HvdProcessGroup(
        opts.group_rank, opts.group_size, ranks, group_set, may_change, opts.timeout
    )
    # torch adds the backends of the other devices to a group of its own. It does not say whether
    # there are others.
    asked = backend_names(sys._getframe(1).f_locals.get("backend", NAME))
    if not may_be_a_backend or len(asked) > 1:
        return backend
    return Group(backend, opts.store, opts.process_group.bound_device_id)
