# Every rank of a job runs the same tests at the same time, in one process:
#
#   hvdrun -np 3 python3 -m pytest -x -q tests/python/numpy_ops_test.py
import pytest

import hvd


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: it takes long; scripts/nightly runs it")


@pytest.fixture(scope="session")
def world():
    hvd.init(process_sets="dynamic")
    yield
    hvd.shutdown()


@pytest.fixture
def even_and_odd():
    """This rank's set among two: the even ranks and the odd ones. Needs two ranks."""
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    ranks = range(hvd.size())
    sets = [hvd.add_process_set([r for r in ranks if r % 2 == half]) for half in (0, 1)]
    yield sets[hvd.rank() % 2]
    for one in sets:
        hvd.remove_process_set(one)


@pytest.fixture(scope="module")
def backend():
    """The backend of torch.distributed, for the whole of a test file."""
    import torch.distributed as dist

    import hvd.torch

    dist.init_process_group("hvd")
    yield
    dist.destroy_process_group()
    hvd.shutdown()


@pytest.fixture
def group():
    """A group of torch.distributed that has had no reconfigure() yet."""
    import torch.distributed as dist
    from torch_backend import other_backend

    with other_backend(enable_reconfigure=True):
        yield dist.group.WORLD
