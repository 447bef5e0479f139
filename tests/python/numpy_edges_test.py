# Objects and process sets on which the ranks disagree, and memory that ranks share.
import sys
import threading
import time

import numpy as np
import pytest

import hvd

pytestmark = pytest.mark.usefixtures("world")


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
