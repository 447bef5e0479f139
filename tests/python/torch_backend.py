# Helpers of the tests of the backend "hvd" of torch.distributed.
import contextlib
import datetime
import itertools

import pytest
import torch
import torch.distributed as dist

import hvd.torch as hvd

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
changing = pytest.mark.skipif(VERSION < (2, 15), reason="torch has reconfigure from 2.15 on")
uuids = itertools.count(1)


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def of_ranks(make):
    return [make(r) for r in range(size())]


def around():
    return (rank() + 1) % size(), (rank() - 1) % size()


def into_tensor(kind):
    return {
        "gather": getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base,
        "scatter": getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base,
    }[kind]


def check_it_works():
    tensor = torch.full((3,), float(rank()))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(sum(range(size())))] * 3


@contextlib.contextmanager
def other_backend(**arguments):
    """A process group in the place of the one that all tests share."""
    dist.destroy_process_group()
    dist.init_process_group("hvd", **arguments)
    try:
        yield
    finally:
        dist.destroy_process_group()
        dist.init_process_group("hvd")


def all_handles():
    return hvd.allgather_object(dist._get_reconfigure_handle())


def reconfigure(handles=None, uuid=None, seconds=60):
    uuid = next(uuids) if uuid is None else uuid
    handles = all_handles() if handles is None else handles
    return dist._reconfigure(uuid, handles, timeout=datetime.timedelta(seconds=seconds)).wait()
