# What only NumPy's arrays have, and what has no tensors: objects, places, process sets.
import json
import threading

import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")


def neighbours():
    return (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()


def of_rank(shape, dtype, rank=None):
    """Small whole numbers that differ from rank to rank, exact in every type."""
    rank = hvd.rank() if rank is None else rank
    count = int(np.prod(shape))
    return (np.arange(count) % 5 + rank + 1).astype(dtype).reshape(shape)


def test_allreduce_takes_arrays_that_are_not_contiguous():
    wide = np.zeros((6, 4), np.float32)
    wide[:, 1] = of_rank((6,), np.float32)
    wanted = sum(of_rank((6,), np.float64, rank) for rank in range(hvd.size()))
    np.testing.assert_array_equal(hvd.allreduce(wide[:, 1], op=hvd.Sum), wanted)
    np.testing.assert_array_equal(hvd.allreduce(wide.T, op=hvd.Sum)[1], wanted)
    assert hvd.allreduce(hvd.rank() + 0.0, op=hvd.Sum) == sum(range(hvd.size()))
    assert hvd.allreduce([1, 2], op=hvd.Sum).tolist() == [hvd.size(), 2 * hvd.size()]


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


def test_the_memory_of_a_result_outlives_its_handle():
    results = [hvd.allgather(np.full((1000,), index, np.int64)) for index in range(20)]
    for index, result in enumerate(results):
        assert (result == index).all()
        result += 1  # it belongs to its owner


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
    assert hvd.is_homogeneous() and hvd.gloo_built() and not hvd.mpi_enabled()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    hvd.init()  # again: nothing


# --- errors ------------------------------------------------------------------------------------


def test_arrays_that_hvd_cannot_take():
    with pytest.raises(TypeError):
        hvd.allreduce(np.array(["text"]))
    with pytest.raises(TypeError):
        hvd.allreduce_([1.0])
    with pytest.raises(ValueError, match="contiguous"):
        hvd.allreduce_(np.ones((4, 4))[:, 1])


def test_collectives_of_different_kinds_under_one_name_fail_on_all():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(hvd.DisagreementError, match="kinds"):
        [hvd.allreduce, hvd.allgather][hvd.rank() % 2](np.ones(4), name="kinds")
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
