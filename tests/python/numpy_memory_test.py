# The memory of arrays whose program drops, replaces and resizes them while hvd works on it. The
# last rank begins its part when all others have done that.
import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")

COUNT = 100_000  # elements, beyond what travels in pieces that are packed


def in_flight(start, disturb):
    """``disturb(start())`` on all ranks but the last, which starts when they have done that."""
    token = np.zeros(1)
    if hvd.rank() < hvd.size() - 1:
        try:
            return disturb(start())
        finally:
            hvd.send(token, hvd.size() - 1)
    for rank in range(hvd.size() - 1):
        hvd.recv(token, rank)
    return disturb(start())


class Strangers:
    """Arrays of the program's own, where freed memory was. Nobody else may write there."""

    def __init__(self, make=np.empty):
        self.arrays = [make(COUNT) for _ in range(8)]
        for array in self.arrays:
            array[:] = 7

    def check(self):
        hvd.barrier()  # what came before it is done
        assert all((array == 7).all() for array in self.arrays)
        hvd.barrier()


CALLS = {
    "allreduce": lambda array: hvd.allreduce_async(array, op=hvd.Sum),
    "allreduce in place": lambda array: hvd.allreduce_async_(array, op=hvd.Sum),
    "grouped allreduce in place": lambda array: hvd.grouped_allreduce_async_([array, array.copy()]),
    "broadcast": lambda array: hvd.broadcast_async(array, 0),
    "broadcast of the last": lambda array: hvd.broadcast_async_(array, hvd.size() - 1),
    "allgather": hvd.allgather_async,
    "alltoall": lambda array: hvd.alltoall_async(array[: hvd.size() * 1000]),
    "reducescatter": hvd.reducescatter_async,
    "of a list": lambda array: hvd.allreduce_async(array.tolist()[:1000]),
    "scattered": lambda array: hvd.allreduce_async(array[::2]),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_handle_and_its_arrays_are_dropped(call):
    def start_and_drop():
        CALLS[call](np.ones(COUNT))

    in_flight(start_and_drop, lambda _: Strangers()).check()


@pytest.mark.parametrize("view", [False, True])
def test_memory_that_ranks_share_is_dropped(view):
    kept = []

    def start_and_drop():
        array = hvd.empty(COUNT, np.float64)
        array[:] = 1
        if view:
            kept.append(array[5:])
        hvd.allreduce_async_(array, op=hvd.Sum)

    strangers = in_flight(
        start_and_drop, lambda _: Strangers(lambda count: hvd.empty(count, np.float64))
    )
    strangers.check()
    assert all((array == hvd.size()).all() for array in kept)


def test_memory_in_flight_cannot_be_resized():
    array = np.ones(COUNT)

    def resize(handle):
        with pytest.raises(ValueError, match="cannot resize"):
            array.resize(4 * COUNT)
        return handle

    handle = in_flight(lambda: hvd.allreduce_async_(array, op=hvd.Sum), resize)
    assert (hvd.synchronize(handle) == hvd.size()).all()


def test_results_outlive_the_world_that_made_them():
    array = np.full(COUNT, hvd.rank() + 1.0)
    gathered = hvd.allgather(array)
    shares = hvd.reducescatter(array, op=hvd.Max)
    shared = hvd.empty(COUNT, np.float64)
    shared[:] = hvd.rank() + 1
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    del array
    strangers = [np.full(COUNT, 7.0) for _ in range(8)]
    assert (gathered.reshape(size, COUNT) == np.arange(1.0, size + 1)[:, None]).all()
    assert (shares == size).all() and (shared == rank + 1).all()
    hvd.init(process_sets="dynamic")
    assert all((array == 7).all() for array in strangers)


def test_a_result_is_all_that_is_left():
    part = in_flight(lambda: hvd.allgather_async(np.ones(COUNT)), lambda handle: handle)
    part = hvd.synchronize(part)[-3:]
    strangers = Strangers()
    assert part.tolist() == [1, 1, 1]
    strangers.check()
