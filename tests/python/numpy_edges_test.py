# The rows that numpy_ops_test.py leaves out: shapes at the edge, process sets, names and groups.
import sys
import threading
import time

import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")
SHAPES = [(4,), (4, 3), (4, 3, 2)]
OPERATIONS = [(hvd.Sum, "sum"), (hvd.Min, "min"), (hvd.Max, "max"), (hvd.Product, "prod")]


def of_rank(shape, dtype=np.float64, rank=None):
    rank = hvd.rank() if rank is None else rank
    return (np.arange(np.prod(shape)) % 3 + rank + 1).astype(dtype).reshape(shape)


def of_ranks(ranks, shape):
    return np.stack([of_rank(shape, rank=rank) for rank in ranks])


@pytest.mark.parametrize("op, reduce", OPERATIONS)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), *SHAPES])
def test_every_operation_in_place(op, reduce, shape):
    array = of_rank(shape)
    wanted = getattr(of_ranks(range(hvd.size()), shape), reduce)(0)
    assert hvd.allreduce_(array, op=op) is array
    np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_reducescatter_averages_and_scales(shape):
    size = hvd.size()
    whole = (shape[0] * size, *shape[1:])
    begin, end = shape[0] * hvd.rank(), shape[0] * (hvd.rank() + 1)
    mean = of_ranks(range(size), whole).mean(0)[begin:end]
    np.testing.assert_allclose(hvd.reducescatter(of_rank(whole), op=hvd.Average), mean)
    handle = hvd.reducescatter_async(
        of_rank(whole), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
    )
    np.testing.assert_allclose(hvd.synchronize(handle), mean * size * 2)


def test_reducescatter_of_fewer_rows_than_ranks():
    result = hvd.reducescatter(np.ones((1, 3)), op=hvd.Sum)
    assert result.shape == (1 if hvd.rank() == 0 else 0, 3)
    assert (result == hvd.size()).all()


def test_alltoall_where_only_one_rank_gets_something():
    splits = [2 if rank == hvd.size() - 1 else 0 for rank in range(hvd.size())]
    result, received = hvd.alltoall(np.full((2, 3), hvd.rank()), splits)
    last = hvd.rank() == hvd.size() - 1
    assert received.tolist() == [2 if last else 0] * hvd.size()
    assert result[:, 0].tolist() == ([r for r in range(hvd.size()) for _ in "ab"] if last else [])
    result, received = hvd.alltoall(np.ones((0, 3)), [0] * hvd.size())
    assert result.shape == (0, 3) and received.sum() == 0


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), *SHAPES])
def test_broadcast_of_every_shape(shape):
    for root in range(hvd.size()):
        wanted = of_rank(shape, rank=root)
        np.testing.assert_array_equal(hvd.broadcast(of_rank(shape), root), wanted)
        handle = hvd.broadcast_async_(of_rank(shape), root)
        np.testing.assert_array_equal(hvd.synchronize(handle), wanted)


def test_asynchronous_groups():
    group = [of_rank(shape) for shape in SHAPES]
    reduced = hvd.synchronize(hvd.grouped_allreduce_async(group, op=hvd.Sum))
    gathered = hvd.synchronize(hvd.grouped_allgather_async(group))
    for shape, total, parts in zip(SHAPES, reduced, gathered):
        every = of_ranks(range(hvd.size()), shape)
        np.testing.assert_array_equal(total, every.sum(0))
        np.testing.assert_array_equal(parts, np.concatenate(list(every)))


def test_a_name_serves_again_and_again():
    for step in range(20):
        result = hvd.allreduce(np.full(3, step), op=hvd.Sum, name="again")
        assert result.tolist() == [step * hvd.size()] * 3
    # Another shape and another type under the same name: what was agreed before is forgotten.
    assert hvd.allreduce(np.ones((2, 2)), op=hvd.Sum, name="again").shape == (2, 2)
    assert hvd.allreduce(np.ones(2, np.int32), op=hvd.Sum, name="again").dtype == np.int32


@pytest.mark.parametrize("op, reduce", [*OPERATIONS, (hvd.Average, "mean")])
def test_allreduce_within_a_process_set(even_and_odd, op, reduce):
    result = hvd.allreduce(of_rank((5, 2)), op=op, process_set=even_and_odd)
    wanted = getattr(of_ranks(even_and_odd.ranks, (5, 2)), reduce)(0)
    np.testing.assert_allclose(result, wanted, rtol=1e-12)


def test_the_other_operations_within_a_process_set(even_and_odd):
    ranks, size = even_and_odd.ranks, even_and_odd.size()
    mine = np.full((size, 2), hvd.rank())
    assert hvd.alltoall(mine, process_set=even_and_odd)[:, 0].tolist() == ranks
    scattered = hvd.reducescatter(mine, op=hvd.Sum, process_set=even_and_odd)
    assert scattered.tolist() == [[sum(ranks)] * 2]
    group = hvd.grouped_allreduce([mine, mine * 2], op=hvd.Sum, process_set=even_and_odd)
    assert (group[0] == sum(ranks)).all() and (group[1] == 2 * sum(ranks)).all()
    parts = hvd.grouped_allgather([mine[:1], mine[:0]], process_set=even_and_odd)
    assert parts[0][:, 0].tolist() == ranks and parts[1].shape == (0, 2)
    assert hvd.broadcast_object(hvd.rank(), ranks[0], process_set=even_and_odd) == ranks[0]


class Unpicklable:
    def __reduce__(self):
        raise KeyError("not to be packed")


def test_an_object_that_cannot_be_packed_is_an_error_on_all_ranks():
    is_last = hvd.rank() == hvd.size() - 1
    last = hvd.size() - 1
    wanted = KeyError if is_last else hvd.errors.InvalidArgumentError
    text = "not to be packed" if is_last else f"rank {last} cannot pack its object: KeyError"
    with pytest.raises(wanted, match=text):
        hvd.broadcast_object(Unpicklable(), root_rank=last)
    with pytest.raises(wanted, match=text):
        hvd.allgather_object(Unpicklable() if is_last else 1)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def test_a_root_that_has_joined_is_a_disagreement():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    root = hvd.size() - 1
    if hvd.rank() != root:
        for call in (
            lambda: hvd.broadcast(np.ones(1), root, name="of a joined root"),
            lambda: hvd.broadcast_object(1, root, name="of a joined root"),
        ):
            with pytest.raises(hvd.DisagreementError, match="has joined"):
                call()
    hvd.join()


def test_a_disagreement_on_objects_or_process_sets_is_told_from_a_wrong_argument():
    if hvd.size() < 2:
        pytest.skip("it takes two to disagree")
    sets = [hvd.add_process_set([rank]) for rank in range(2)]
    for call in (
        lambda: hvd.broadcast_object(1, root_rank=hvd.rank() % 2),
        lambda: hvd.add_process_set([0, 1][: 1 + hvd.rank() % 2]),
        lambda: hvd.remove_process_set(sets[hvd.rank() % 2]),
    ):
        with pytest.raises(hvd.DisagreementError, match="Mismatched"):
            call()
    for one in sets:
        assert hvd.remove_process_set(one)
    for call, words in (
        (lambda: hvd.broadcast_object(1, root_rank=99), "no root rank 99"),
        (lambda: hvd.add_process_set([99]), "no rank 99"),
        (lambda: hvd.add_process_set([]), "at least one rank"),
    ):
        with pytest.raises(hvd.InvalidArgumentError, match=words) as caught:
            call()
        assert not isinstance(caught.value, hvd.DisagreementError)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def test_only_a_handle_can_be_waited_for():
    for call in (hvd.synchronize, hvd.poll):
        with pytest.raises(TypeError, match="is needed, not int"):
            call(5)


def test_functions_of_the_program_can_be_sent_by_cloudpickle():
    pytest.importorskip("cloudpickle")
    assert hvd.broadcast_object(Unpicklable, root_rank=0) is Unpicklable, "it is not copied"
    factor = hvd.broadcast_object(3 + hvd.rank(), root_rank=0)
    triple = hvd.broadcast_object(lambda value: factor * value, root_rank=0)
    assert triple(5) == 15


def test_an_error_comes_from_synchronize_not_from_the_call():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    handle = hvd.allreduce_async(np.ones(3 + hvd.rank()), name="later")
    with pytest.raises(hvd.HorovodInternalError, match="later"):
        hvd.synchronize(handle)
    assert hvd.allreduce(np.ones(3), op=hvd.Sum, name="later").tolist() == [hvd.size()] * 3


# --- memory that ranks share -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (5,), (300, 200), 70_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_arrays_in_shared_memory_are_as_others(shape, dtype):
    array = hvd.empty(shape, dtype)
    assert array.shape == np.empty(shape).shape and array.dtype == dtype
    assert not array.any()
    array[...] = hvd.rank() + 1
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    assert (array == sum(range(1, hvd.size() + 1))).all()


def test_shared_memory_beside_ordinary_memory_gives_the_same():
    wanted = np.full(70_000, sum(range(1, hvd.size() + 1)), np.float32)
    for round in range(3):
        array = np.zeros(70_000, np.float32) if hvd.rank() == round % 2 else hvd.empty(70_000)
        array[:] = hvd.rank() + 1
        hvd.allreduce_(array, op=hvd.Sum)
        np.testing.assert_array_equal(array, wanted)


def test_views_of_shared_memory_keep_it():
    part = hvd.empty((4, 3))[1]
    part[:] = hvd.rank()
    del_me = [hvd.empty((4, 3)) for _ in range(10)]
    del del_me
    hvd.allreduce_(part, op=hvd.Sum)
    assert part.tolist() == [sum(range(hvd.size()))] * 3


def test_other_threads_run_while_shared_memory_is_given_back():
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)  # no thread has to stop for another one
    ran = []
    deadline = time.monotonic() + 60
    try:
        while not ran and time.monotonic() < deadline:
            arrays = [hvd.empty(4 << 20) for _ in range(4)]
            for index in range(4):
                arrays[index][:] = 1
            begins = threading.Semaphore(0)
            other = threading.Thread(target=lambda: begins.acquire() and ran.append(True))
            other.start()
            begins.release()
            arrays.clear()
            had_run = bool(ran)
            other.join()
            if not had_run:
                ran.clear()
    finally:
        sys.setswitchinterval(switch_interval)
    assert ran


def test_impossible_shapes_of_shared_memory_are_refused():
    with pytest.raises(ValueError, match=r"\(2, -1\)"):
        hvd.empty((2, -1))
    for extent in (1 << 60, 1 << 62):
        with pytest.raises(MemoryError):
            hvd.empty(extent)
    for shape in ("three", 1.5, None):
        with pytest.raises(TypeError):
            hvd.empty(shape)
    with pytest.raises(hvd.errors.UnsupportedTypeError, match="complex64"):
        hvd.empty(3, np.complex64)
    assert hvd.empty(np.int64(5)).shape == hvd.empty([np.int32(5)]).shape == (5,)
