# Programs that are right in one process end with the same weights over hvd.DistributedOptimizer,
# and over DistributedDataParallel.
import os
import shutil
import tempfile

import pytest
import torch
import torch.distributed as dist
from torch_programs import PROGRAMS, STEPS, VERSION, Ddp, Hvd, Way, weights_of

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture(scope="module")
def gloo(world):
    folder = tempfile.mkdtemp() if hvd.rank() == 0 else None
    store = os.path.join(hvd.broadcast_object(folder), "store")
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=hvd.rank(), world_size=hvd.size()
    )
    yield
    dist.destroy_process_group()
    hvd.barrier()  # until then another rank may use the store
    if folder is not None:
        shutil.rmtree(folder)


def trained(name, way):
    step = PROGRAMS[name].make(way)
    for i in range(STEPS):
        step(i)
    return weights_of(way)


def assert_same(name, weights, expected):
    tolerance = 1e-9 if PROGRAMS[name].exact else 1e-5
    for one, other in zip(weights, expected):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def skip_unless_there(name):
    if PROGRAMS[name].least_torch > VERSION:
        pytest.skip(f"needs torch {PROGRAMS[name].least_torch}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_hvd_is_as_one_process(name):
    skip_unless_there(name)
    weights = trained(name, Hvd(hvd.size()))
    assert_same(name, weights, trained(name, Way(hvd.size())))
    for one in hvd.allgather_object(weights):
        assert all(torch.equal(own, other) for own, other in zip(weights, one))


@pytest.mark.parametrize("name", [name for name, one in PROGRAMS.items() if one.ddp])
def test_ddp_is_as_one_process(name, gloo):
    skip_unless_there(name)
    assert_same(name, trained(name, Ddp(hvd.size())), trained(name, Way(hvd.size())))
