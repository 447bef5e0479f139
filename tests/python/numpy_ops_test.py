# The operations on NumPy arrays, for every type, rank count and shape.
import json
import threading

import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")
INTEGERS = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64]
FLOATS = [np.float16, np.float32, np.float64]
SHAPES = [(), (17,), (5, 3), (2, 3, 4), (0,), (0, 3)]


def neighbours():
    return (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()


def of_rank(shape, dtype, rank=None):
    """Small whole numbers that differ from rank to rank, exact in every type."""
    rank = hvd.rank() if rank is None else rank
    count = int(np.prod(shape))
    return (np.arange(count) % 5 + rank + 1).astype(dtype).reshape(shape)


def all_ranks(shape, dtype):
    return np.stack([of_rank(shape, np.float64, rank) for rank in range(hvd.size())]).astype(dtype)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_allreduce_sum(dtype, shape):
    result = hvd.allreduce(of_rank(shape, dtype), op=hvd.Sum)
    assert result.dtype == dtype and result.shape == shape
    np.testing.assert_array_equal(result, all_ranks(shape, np.float64).sum(0).astype(dtype))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("op, reduce", [(hvd.Min, "min"), (hvd.Max, "max"), (hvd.Product, "prod")])
def test_allreduce_other_operations(dtype, op, reduce):
    result = hvd.allreduce(of_rank((9,), dtype), op=op)
    wanted = getattr(all_ranks((9,), np.float64), reduce)(0).astype(dtype)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_allreduce_average(dtype):
    wanted = all_ranks((8,), np.float64).mean(0)
    for arguments in ({}, {"op": hvd.Average}, {"average": True}):
        result = hvd.allreduce(of_rank((8,), dtype), **arguments)
        np.testing.assert_allclose(result, wanted, rtol=1e-3)
    np.testing.assert_allclose(
        hvd.allreduce(of_rank((8,), dtype), average=False), wanted * hvd.size(), rtol=1e-3
    )


def test_allreduce_of_booleans():
    mine = np.array([True, False, hvd.rank() == 0])
    np.testing.assert_array_equal(hvd.allreduce(mine, op=hvd.Max), [True, False, True])
    np.testing.assert_array_equal(hvd.allreduce(mine, op=hvd.Min)[:2], [True, False])


@pytest.mark.parametrize("dtype", FLOATS)
def test_allreduce_scales_before_and_after(dtype):
    result = hvd.allreduce(
        of_rank((6,), dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
    )
    np.testing.assert_allclose(result, all_ranks((6,), np.float64).sum(0) * 2, rtol=1e-3)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_allreduce_compresses(compression):
    result = hvd.allreduce(of_rank((40,), np.float32), op=hvd.Sum, compression=compression)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, all_ranks((40,), np.float64).sum(0), rtol=1e-2)


def test_allreduce_in_place_changes_the_same_array():
    array = of_rank((7,), np.float32)
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    np.testing.assert_array_equal(array, all_ranks((7,), np.float64).sum(0))
    handle = hvd.allreduce_async_(array, op=hvd.Average)
    assert hvd.synchronize(handle) is array


def test_allreduce_takes_arrays_that_are_not_contiguous():
    wide = np.zeros((6, 4), np.float32)
    wide[:, 1] = of_rank((6,), np.float32)
    wanted = all_ranks((6,), np.float64).sum(0)
    np.testing.assert_array_equal(hvd.allreduce(wide[:, 1], op=hvd.Sum), wanted)
    np.testing.assert_array_equal(hvd.allreduce(wide.T, op=hvd.Sum)[1], wanted)
    assert hvd.allreduce(hvd.rank() + 0.0, op=hvd.Sum) == sum(range(hvd.size()))
    assert hvd.allreduce([1, 2], op=hvd.Sum).tolist() == [hvd.size(), 2 * hvd.size()]


def test_asynchronous_calls_complete_in_any_order():
    handles = [
        hvd.allreduce_async(np.full(100, index, np.float64), op=hvd.Sum, name=f"async.{index}")
        for index in range(50)
    ]
    for index, handle in reversed(list(enumerate(handles))):
        result = hvd.synchronize(handle)
        assert hvd.poll(handle)
        np.testing.assert_array_equal(result, np.full(100, index * hvd.size()))
        assert hvd.synchronize(handle) is result


def test_a_handle_that_is_dropped_harms_nothing():
    for index in range(50):
        hvd.allreduce_async(np.ones(1000), name=f"dropped.{index}")
    hvd.barrier()


def test_callbacks_run_on_a_thread_of_python():
    done = threading.Event()
    seen = []

    def callback(handle):
        seen.append((handle.wait().tolist(), threading.current_thread()))
        done.set()

    hvd.allreduce_async(np.ones(3), op=hvd.Sum).add_done_callback(callback)
    assert done.wait(60)
    assert seen[0][0] == [hvd.size()] * 3
    assert seen[0][1] is not threading.main_thread()


def test_grouped_allreduce():
    arrays = [of_rank((4,), np.float32), of_rank((2, 2), np.float64), of_rank((3,), np.int32)]
    results = hvd.grouped_allreduce(arrays, op=hvd.Sum)
    for result, array in zip(results, arrays):
        np.testing.assert_array_equal(result, all_ranks(array.shape, np.float64).sum(0))
    assert all(a is b for a, b in zip(hvd.grouped_allreduce_(arrays, op=hvd.Sum), arrays))
    np.testing.assert_array_equal(arrays[0], results[0])


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + [np.bool_])
@pytest.mark.parametrize("row", [(), (3,), (2, 2)])
def test_allgather_of_different_lengths(dtype, row):
    mine = np.full((hvd.rank() + 1, *row), hvd.rank() % 2, dtype)
    wanted = np.concatenate([np.full((r + 1, *row), r % 2, dtype) for r in range(hvd.size())])
    result = hvd.allgather(mine)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, wanted)


def test_allgather_where_ranks_have_nothing():
    mine = np.ones((1 if hvd.rank() == 0 else 0, 4), np.float32)
    assert hvd.allgather(mine).shape == (1, 4)
    assert hvd.allgather(np.ones((0, 4), np.float32)).shape == (0, 4)


def test_the_memory_of_a_result_outlives_its_handle():
    results = [hvd.allgather(np.full((1000,), index, np.int64)) for index in range(20)]
    for index, result in enumerate(results):
        assert (result == index).all()
        result += 1  # it belongs to its owner


def test_grouped_allgather():
    first, second = hvd.grouped_allgather([np.full((2, 3), hvd.rank()), np.array([hvd.rank()])])
    assert first.shape == (2 * hvd.size(), 3)
    assert second.tolist() == list(range(hvd.size()))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + [np.bool_])
def test_broadcast_from_every_root(dtype):
    for root in range(hvd.size()):
        array = np.full((3, 2), hvd.rank() % 2, dtype)
        result = hvd.broadcast(array, root)
        np.testing.assert_array_equal(result, np.full((3, 2), root % 2, dtype))
        np.testing.assert_array_equal(array, np.full((3, 2), hvd.rank() % 2, dtype))
        assert hvd.broadcast_(array, root_rank=root) is array
        np.testing.assert_array_equal(array, result)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_alltoall(dtype):
    size = hvd.size()
    mine = np.full((2 * size, 3), hvd.rank(), dtype)
    wanted = np.repeat(np.arange(size), 2).astype(dtype)
    result = hvd.alltoall(mine)
    np.testing.assert_array_equal(result[:, 0], wanted)
    splits = [rank + 1 for rank in range(size)]
    result, received = hvd.alltoall(np.full((sum(splits), 2), hvd.rank(), dtype), splits)
    assert received.dtype == np.int32 and received.tolist() == [hvd.rank() + 1] * size
    np.testing.assert_array_equal(result[:, 1], np.repeat(np.arange(size), hvd.rank() + 1))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_reducescatter(dtype):
    size = hvd.size()
    rows = 2 * size + 1  # the first rank has one more
    result = hvd.reducescatter(np.full((rows, 2), hvd.rank() + 1, dtype), op=hvd.Sum)
    assert result.shape == (3 if hvd.rank() == 0 else 2, 2)
    assert (result == sum(range(1, size + 1))).all()
    one, two = hvd.grouped_reducescatter([np.ones((size, 2)), np.ones(2 * size)], op=hvd.Sum)
    assert one.shape == (1, 2) and two.shape == (2,) and (two == size).all()


def test_process_sets(even_and_odd):
    assert even_and_odd.included() and even_and_odd.size() == len(even_and_odd.ranks)
    assert even_and_odd.ranks[even_and_odd.rank()] == hvd.rank()
    total = hvd.allreduce(np.array([hvd.rank()]), op=hvd.Sum, process_set=even_and_odd)
    assert total[0] == sum(even_and_odd.ranks)
    gathered = hvd.allgather(np.array([hvd.rank()]), process_set=even_and_odd)
    assert gathered.tolist() == even_and_odd.ranks
    root = even_and_odd.ranks[-1]
    assert hvd.broadcast(np.array([hvd.rank()]), root, process_set=even_and_odd)[0] == root
    assert hvd.allgather_object(hvd.rank(), process_set=even_and_odd) == even_and_odd.ranks
    hvd.barrier(process_set=even_and_odd)


def test_calls_in_a_process_set_are_not_counted_in_the_world():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    root = hvd.size() - 1
    added = hvd.add_process_set([root])
    if added.included():
        hvd.barrier(added)
        assert hvd.broadcast_object("own", root, process_set=added) == "own"
        assert hvd.allgather_object("own", process_set=added) == ["own"]
        hvd.allreduce(np.ones(2), process_set=added)
    else:
        with pytest.raises(hvd.NotAMemberError):
            hvd.barrier(added)
    hvd.barrier()
    assert hvd.broadcast_object(hvd.rank(), root) == root
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    assert (hvd.allreduce(np.ones(2), op=hvd.Sum) == hvd.size()).all()
    assert hvd.remove_process_set(added)


def test_a_removed_process_set_is_unknown():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    added = hvd.add_process_set([0])
    assert added.process_set_id in hvd.process_set_ids()
    with pytest.raises(hvd.DuplicateProcessSetError):
        hvd.add_process_set([0])
    if hvd.rank() != 0:
        with pytest.raises(hvd.NotAMemberError):
            hvd.allreduce(np.ones(1), process_set=added)
    assert hvd.remove_process_set(added)
    with pytest.raises(ValueError):
        hvd.allreduce(np.ones(1), process_set=added)
    assert not hvd.remove_process_set(hvd.global_process_set)


def test_join_leaves_an_average_to_the_ranks_that_have_data():
    for _ in range(hvd.rank()):
        hvd.allreduce_(np.ones(4), op=hvd.Average, name="before.join")
    if hvd.rank() == hvd.size() - 1:
        assert (hvd.allreduce(np.full(4, 5.0), name="alone") == 5.0).all()
    assert hvd.join() in range(hvd.size())


def test_objects():
    objects = hvd.allgather_object({"rank": hvd.rank(), "text": "x" * hvd.rank() * 1000})
    assert [one["rank"] for one in objects] == list(range(hvd.size()))
    root = hvd.size() - 1
    assert hvd.broadcast_object(objects if hvd.rank() == root else None, root) == objects
    assert hvd.broadcast_object(None, 0) is None


def test_places():
    assert hvd.is_initialized() and 0 <= hvd.rank() < hvd.size()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert 0 <= hvd.cross_rank() < hvd.cross_size()
    assert hvd.is_homogeneous() and hvd.gloo_built() and not hvd.mpi_built()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    hvd.init()  # again: nothing


# --- errors ------------------------------------------------------------------------------------


def test_wrong_arguments_of_this_rank_fail_at_the_call():
    with pytest.raises(ValueError, match="splits"):
        hvd.alltoall(np.ones(4), splits=[5] * hvd.size())
    with pytest.raises(ValueError):
        hvd.alltoall(np.ones(4), splits=[1] * (hvd.size() + 1))
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast(np.ones(1), hvd.size())
    with pytest.raises(ValueError):
        hvd.allgather(np.float32(1))
    with pytest.raises(TypeError):
        hvd.allreduce(np.array(["text"]))
    with pytest.raises(TypeError):
        hvd.allreduce_([1.0])
    with pytest.raises(ValueError, match="contiguous"):
        hvd.allreduce_(np.ones((4, 4))[:, 1])
    with pytest.raises(ValueError, match="both"):
        hvd.allreduce(np.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(ValueError):
        hvd.allreduce(np.ones(1), op=17)
    with pytest.raises(ValueError, match="neither"):
        hvd.allreduce(np.ones(1), process_set=hvd.ProcessSet([0]))
    hvd.barrier()


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: hvd.allreduce(np.ones(4 + hvd.rank()), name="shapes"), "shapes"),
        (
            lambda: hvd.allreduce(
                np.ones(4, [np.float32, np.float64][hvd.rank() % 2]), name="types"
            ),
            "types",
        ),
        (
            lambda: hvd.allreduce(np.ones(4), op=[hvd.Sum, hvd.Max][hvd.rank() % 2], name="ops"),
            "ops",
        ),
        (lambda: hvd.allgather(np.ones((2, 2 + hvd.rank())), name="rows"), "rows"),
        (lambda: hvd.broadcast(np.ones(4), hvd.rank() % 2, name="roots"), "roots"),
        (lambda: hvd.broadcast(np.ones(4 + hvd.rank()), 0, name="sizes"), "sizes"),
        (
            lambda: [hvd.allreduce, hvd.allgather][hvd.rank() % 2](np.ones(4), name="kinds"),
            "kinds",
        ),
    ],
)
def test_arguments_that_differ_between_ranks_fail_on_all(call, word):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(hvd.HorovodInternalError, match=word) as caught:
        call()
    assert isinstance(caught.value, (hvd.DisagreementError, ValueError))
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()  # the world is as it was


def test_a_name_twice_in_flight_is_refused():
    if hvd.size() < 2:
        pytest.skip("a single rank is done at once")
    hvd.barrier()
    if hvd.rank() == 0:
        first = hvd.allreduce_async(np.ones(4), name="twice")
        with pytest.raises(ValueError, match="twice"):
            hvd.allreduce_async(np.ones(4), name="twice")
    else:
        first = None
    hvd.barrier()
    if first is None:
        first = hvd.allreduce_async(np.ones(4), name="twice")
    assert first.wait()[0] == 1


def test_timeline(tmp_path):
    path = hvd.broadcast_object(str(tmp_path / "timeline.json"), 0)
    hvd.stop_timeline()  # there is none
    hvd.start_timeline(path, mark_cycles=True)
    hvd.start_timeline(path + ".second")  # there is one already
    hvd.barrier()
    hvd.allreduce(np.ones(100), name="recorded")
    hvd.barrier()
    if hvd.rank() == 0:
        hvd.stop_timeline()
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        assert "recorded" in json.dumps(events)
    hvd.barrier()


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_send_and_recv(dtype, shape):
    if hvd.size() == 1:
        pytest.skip("it takes two")
    after, before = neighbours()
    sent = hvd.send_async(of_rank(shape, dtype), after)
    received = np.empty(shape, dtype)
    assert hvd.recv(received, before) is received
    np.testing.assert_array_equal(received, of_rank(shape, dtype, before))
    assert sent.wait() is None


def test_send_and_recv_are_matched_by_name():
    if hvd.size() == 1:
        pytest.skip("it takes two")
    after, before = neighbours()
    sent = [hvd.send_async(np.full(2, number), after, name=str(number)) for number in range(5)]
    for number in reversed(range(5)):
        assert hvd.recv(np.zeros(2, np.int64), before, name=str(number)).tolist() == [number] * 2
    for one in sent:
        one.wait()


def test_send_to_a_rank_that_cannot_receive():
    for rank, words in ((hvd.rank(), "cannot send to itself"), (hvd.size(), "there is no rank")):
        with pytest.raises(hvd.InvalidArgumentError, match=words):
            hvd.send(np.ones(2), rank)
    with pytest.raises(hvd.InvalidArgumentError, match="there is no rank -1"):
        hvd.recv(np.ones(2), -1)


def test_send_and_recv_of_different_shapes():
    if hvd.size() == 1:
        pytest.skip("it takes two")
    if hvd.rank() == 0:
        with pytest.raises(hvd.DisagreementError, match="Mismatched send_recv tensor shapes"):
            hvd.send(np.ones(2), 1)
    if hvd.rank() == 1:
        with pytest.raises(hvd.DisagreementError, match="Mismatched send_recv tensor shapes"):
            hvd.recv(np.ones(3), 0)
