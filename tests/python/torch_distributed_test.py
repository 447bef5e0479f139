# The operations of torch.distributed over the backend "hvd".
import warnings

import pytest
import torch
import torch.distributed as dist
from torch_backend import VERSION, around, into_tensor, of_ranks, rank, size

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("backend")
TYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8]


def test_it_knows_its_place():
    assert dist.get_backend() == "hvd"
    assert (rank(), size()) == (hvd.rank(), hvd.size())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "op, expected",
    [
        ("SUM", lambda values: sum(values)),
        ("MIN", min),
        ("MAX", max),
        ("PRODUCT", lambda values: torch.tensor(values).prod().item()),
    ],
)
def test_all_reduce(dtype, op, expected):
    tensor = torch.full((2, 3), rank() + 1).to(dtype)
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    assert tensor.dtype == dtype
    assert tensor.tolist() == [[expected(of_ranks(lambda r: r + 1))] * 3] * 2


def test_all_reduce_of_an_average():
    if not hasattr(dist.ReduceOp, "AVG"):
        pytest.skip("this torch has no AVG")
    tensor = torch.full((3,), float(rank() * 2))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.tolist() == [float(size() - 1)] * 3


@pytest.mark.parametrize("op", ["SUM", "AVG"])
@pytest.mark.parametrize("sparse_dimensions", [1, 2])
def test_all_reduce_of_a_sparse_tensor(op, sparse_dimensions):
    if not hasattr(dist.ReduceOp, op):
        pytest.skip("this torch has no AVG")
    dense = torch.zeros(6, 3)
    dense[rank() + 1, 0] = rank() + 2.0
    dense[0] = 1.0
    tensor = dense.to_sparse(sparse_dimensions)
    work = dist.all_reduce(tensor, getattr(dist.ReduceOp, op), async_op=True)
    work.wait()
    whole = torch.zeros(6, 3)
    whole[0] = size()
    for r in range(size()):
        whole[r + 1, 0] = r + 2.0
    assert tensor.is_sparse
    assert torch.allclose(tensor.to_dense(), whole / (size() if op == "AVG" else 1))
    nothing = torch.zeros(4).to_sparse()
    dist.all_reduce(nothing)
    assert nothing.to_dense().tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="a sparse tensor is reduced by SUM or AVG"):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def test_all_reduce_of_a_part_of_a_tensor():
    whole = torch.zeros(4, 4)
    whole[:, 1] = rank() + 1.0
    dist.all_reduce(whole[:, 1])
    assert whole[:, 1].tolist() == [float(sum(of_ranks(lambda r: r + 1)))] * 4
    assert whole[:, 0].tolist() == [0.0] * 4


def test_work_is_waited_for_and_its_future_has_the_tensors():
    tensor = torch.full((1000,), float(rank()))
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is not False
    assert work.get_future().done()
    assert tensor[0].item() == sum(range(size()))
    tensor = torch.ones(3)
    value = dist.all_reduce(tensor, async_op=True).get_future().wait()
    assert value[0].tolist() == [float(size())] * 3


def test_work_says_how_it_has_ended():
    tensor = torch.ones(2)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success()
    assert work.exception() is None
    assert work.result()[0].tolist() == [float(size())] * 2


def test_work_that_has_failed_says_so():
    if size() == 1:
        pytest.skip("it takes two to disagree")
    work = dist.all_reduce(torch.ones(1 + rank()), async_op=True)
    with pytest.raises(hvd.HorovodInternalError, match="shape"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), hvd.HorovodInternalError)
    with pytest.raises(hvd.HorovodInternalError, match="shape"):
        work.result()


def test_work_of_another_backend_answers_by_itself():
    group = dist.new_group(backend="gloo")
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success()
    if size() == 1:
        return
    after, before = around()
    receive = dist.irecv(torch.zeros(2), before, group=group)
    dist.send(torch.ones(2), after, group=group)
    receive.wait()
    assert receive.is_completed()
    assert receive.source_rank() == before


@pytest.mark.parametrize("depth", [1, 5])
def test_a_callback_of_a_future_may_wait_for_another(depth):
    def reduced(left):
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        if left == 0:
            return future
        return future.then(lambda done: done.value()[0] + reduced(left - 1).wait()[0])

    first, second = reduced(depth), reduced(depth)
    assert second.wait().tolist() == first.wait().tolist() == [size() * (depth + 1)] * 2


@pytest.mark.parametrize("wait_outside", [False, True])
def test_tensors_of_inference_mode_are_filled(wait_outside):
    with torch.inference_mode():
        own = torch.full((2,), float(rank()))
        all_of_them = [torch.empty(2) for _ in range(size())]
        works = [
            dist.all_gather(all_of_them, own, async_op=True),
            dist.all_reduce(torch.ones(3, 2).t(), async_op=True),
        ]
        if not wait_outside:
            assert all(work.wait() for work in works)
    assert all(work.wait() for work in works)
    assert [one.tolist() for one in all_of_them] == of_ranks(lambda r: [r, r])


def test_many_are_in_flight_at_once():
    tensors = [torch.full((n,), float(rank() + n)) for n in range(1, 300)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for n, (tensor, work) in enumerate(zip(tensors, works), 1):
        work.wait()
        assert tensor[0].item() == sum(of_ranks(lambda r, n=n: r + n))


def test_names_begin_anew_after_many_calls():
    tensor = torch.ones(1)
    for _ in range(600):
        tensor.fill_(1.0)
        dist.all_reduce(tensor)
        assert tensor.item() == size()


@pytest.mark.parametrize("dtype", TYPES)
def test_broadcast(dtype):
    for root in range(size()):
        tensor = torch.full((3, 2), rank()).to(dtype)
        dist.broadcast(tensor, root)
        assert tensor.tolist() == [[root, root]] * 3


def test_reduce_changes_the_root_alone():
    for root in range(size()):
        tensor = torch.full((3,), rank() + 1.0)
        dist.reduce(tensor, root)
        whole = float(sum(of_ranks(lambda r: r + 1)))
        assert tensor.tolist() == [whole if rank() == root else rank() + 1.0] * 3


@pytest.mark.parametrize("dtype", TYPES)
def test_all_gather(dtype):
    outputs = of_ranks(lambda r: torch.zeros(2, 2, dtype=dtype))
    dist.all_gather(outputs, torch.full((2, 2), rank()).to(dtype))
    assert [one.tolist() for one in outputs] == of_ranks(lambda r: [[r, r]] * 2)


def test_all_gather_of_a_scalar():
    outputs = of_ranks(lambda r: torch.zeros(()))
    dist.all_gather(outputs, torch.tensor(float(rank())))
    assert [one.item() for one in outputs] == of_ranks(float)


def test_all_gather_into_one_tensor():
    output = torch.zeros(size() * 2, 3)
    into_tensor("gather")(output, torch.full((2, 3), float(rank())))
    assert output.tolist() == [[float(r)] * 3 for r in range(size()) for _ in range(2)]


def test_gather():
    for root in range(size()):
        outputs = of_ranks(lambda r: torch.zeros(2)) if rank() == root else None
        dist.gather(torch.full((2,), float(rank())), outputs, root)
        if rank() == root:
            assert [one.tolist() for one in outputs] == of_ranks(lambda r: [float(r)] * 2)


def test_scatter():
    for root in range(size()):
        inputs = of_ranks(lambda r: torch.full((2,), r + 10.0)) if rank() == root else None
        output = torch.zeros(2)
        dist.scatter(output, inputs, root)
        assert output.tolist() == [rank() + 10.0] * 2


def test_reduce_scatter():
    output = torch.zeros(3)
    dist.reduce_scatter(output, of_ranks(lambda r: torch.full((3,), float(r + rank()))))
    assert output.tolist() == [float(sum(of_ranks(lambda r: r + rank())))] * 3


def test_reduce_scatter_of_one_tensor():
    given = torch.arange(size() * 2, dtype=torch.float32) * (rank() + 1)
    output = torch.zeros(2)
    into_tensor("scatter")(output, given)
    whole = sum(of_ranks(lambda r: r + 1))
    assert output.tolist() == [float(whole * (rank() * 2 + n)) for n in range(2)]


def test_all_to_all():
    outputs = of_ranks(lambda r: torch.zeros(r + 1))
    # To rank r go as many elements as this rank's number says, so that sizes differ.
    dist.all_to_all(outputs, of_ranks(lambda r: torch.full((rank() + 1,), float(rank() * 10 + r))))
    assert [one.tolist() for one in outputs] == of_ranks(
        lambda r: [float(r * 10 + rank())] * (r + 1)
    )


def test_all_to_all_of_one_tensor():
    output = torch.zeros(size(), 2)
    dist.all_to_all_single(output, torch.full((size(), 2), float(rank())))
    assert output.tolist() == of_ranks(lambda r: [float(r)] * 2)


def test_all_to_all_of_one_tensor_with_splits():
    received = [r + 1 for r in range(size())]
    output = torch.zeros(sum(received))
    dist.all_to_all_single(
        output,
        torch.full(((rank() + 1) * size(),), float(rank())),
        received,
        [rank() + 1] * size(),
    )
    assert output.tolist() == [float(r) for r in range(size()) for _ in range(r + 1)]


# A large one first: it is in flight for longer than the small one after it.
LENGTHS = 1_000_000, 2


def numbered(length, of_rank):
    return torch.arange(float(length)) + of_rank


def test_all_gather_of_several_tensors_waits_for_each():
    for _ in range(5):
        outputs = of_ranks(lambda r: [torch.zeros(length) for length in LENGTHS])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later versions of torch call it obsolete
            dist.all_gather_coalesced(outputs, [numbered(length, rank()) for length in LENGTHS])
        for r, of_rank in enumerate(outputs):
            assert all(torch.equal(one, numbered(len(one), r)) for one in of_rank)


def backend_of_group():
    """A class that has torch's methods for several tensors at once."""
    group = dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu")) if VERSION >= (2, 15) else group


@pytest.mark.parametrize("get_future", [False, True])
def test_several_tensors_into_one_wait_for_each(get_future):
    def wait(work):
        work.get_future().wait() if get_future else work.wait()

    group = backend_of_group()
    whole = float(sum(range(size())))
    for _ in range(5):
        outputs = [torch.zeros(length) for length in LENGTHS]
        inputs = [numbered(length * size(), rank()) for length in LENGTHS]
        wait(group.reduce_scatter_tensor_coalesced(outputs, inputs))
        for one in outputs:
            own = torch.arange(float(len(one) * size())).chunk(size())[rank()]
            assert torch.equal(one, own * size() + whole)

    for _ in range(5):
        outputs = [torch.zeros(length * size()) for length in LENGTHS]
        inputs = [numbered(length, rank()) for length in LENGTHS]
        wait(group.allgather_into_tensor_coalesced(outputs, inputs))
        for one in outputs:
            assert torch.equal(
                one, torch.cat(of_ranks(lambda r, n=len(one): numbered(n // size(), r)))
            )


def test_an_error_of_the_first_of_several_tensors_is_an_error_of_all():
    if size() == 1:
        pytest.skip("it takes two to disagree")
    group = backend_of_group()
    inputs = [torch.ones(size() * (1 + rank())), torch.ones(size())]
    outputs = [torch.zeros(1 + rank()), torch.zeros(1)]
    work = group.reduce_scatter_tensor_coalesced(outputs, inputs)
    with pytest.raises(RuntimeError, match="shape"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    assert outputs[1].tolist() == [float(size())]
    with pytest.raises(RuntimeError, match="shape"):
        work.get_future().wait()
    works = group.reduce_scatter_tensor_coalesced([], [])
    works.wait()
    assert works.get_future().done()


@pytest.mark.parametrize("dtype", [*TYPES, torch.bfloat16, torch.bool])
def test_send_and_receive(dtype):
    if size() == 1:
        pytest.skip("it takes two")
    after, before = around()
    sent = dist.isend(torch.full((3, 2), rank()).to(dtype), after)
    received = torch.zeros(3, 2, dtype=dtype)
    assert dist.recv(received, before) in (before, None)
    sent.wait()
    assert torch.equal(received, torch.full((3, 2), before).to(dtype))


def test_a_receive_knows_its_sender():
    if size() == 1:
        pytest.skip("a rank does not send to itself")
    before, after = (rank() - 1) % size(), (rank() + 1) % size()
    tensor = torch.zeros(2)
    receive = dist.irecv(tensor, before)
    send = dist.isend(torch.ones(2), after)
    receive.wait()
    assert receive.source_rank() == before
    send.wait()
    with pytest.raises(RuntimeError, match="receive"):
        dist.all_reduce(tensor, async_op=True).source_rank()


def test_receive_into_a_part_of_a_tensor():
    if size() == 1:
        pytest.skip("it takes two")
    after, before = around()
    whole = torch.zeros(4, 4)
    received = dist.irecv(whole[:, 1], before)
    column = torch.arange(16.0).reshape(4, 4)[:, 2] + rank()
    dist.send(column, after)
    received.wait()
    assert whole[:, 1].tolist() == [2.0 + before, 6.0 + before, 10.0 + before, 14.0 + before]
    assert whole.sum() == whole[:, 1].sum()


def test_sends_are_matched_by_tag_and_order():
    if size() == 1:
        pytest.skip("it takes two")
    after, before = around()
    works = []
    for tag in (7, 3):
        for number in range(300):
            works.append(dist.isend(torch.tensor([1000 * tag + number]), after, tag=tag))
    for tag in (3, 7):
        for number in range(300):
            received = torch.zeros(1, dtype=torch.int64)
            dist.recv(received, before, tag=tag)
            assert received.item() == 1000 * tag + number
    for work in works:
        work.wait()


def test_sends_in_a_batch():
    if size() == 1:
        pytest.skip("it takes two")
    after, before = around()
    received = torch.zeros(5)
    operations = [
        dist.P2POp(dist.isend, torch.full((5,), float(rank())), after),
        dist.P2POp(dist.irecv, received, before),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert received.tolist() == [float(before)] * 5


def test_send_within_a_group():
    if size() < 3:
        pytest.skip("it takes three")
    ranks = list(range(1, size()))
    group = dist.new_group(ranks)
    if rank() == 0:
        return
    if rank() == 1:
        dist.send(torch.tensor([4.0]), ranks[-1], group=group)
    elif rank() == ranks[-1]:
        received = torch.zeros(1)
        dist.recv(received, 1, group=group)
        assert received.item() == 4.0


def test_receive_must_name_the_sender():
    with pytest.raises((NotImplementedError, RuntimeError), match="must name the rank that sends"):
        dist.recv(torch.zeros(1))


def test_objects():
    gathered = [None] * size()
    dist.all_gather_object(gathered, {"rank": rank(), "text": "x" * rank()})
    assert gathered == of_ranks(lambda r: {"rank": r, "text": "x" * r})
    objects = [("from", rank())]
    dist.broadcast_object_list(objects, src=size() - 1)
    assert objects == [("from", size() - 1)]


def test_barrier():
    dist.barrier()


# The methods of a group, as programs call them that pass torch's own backends by hand.
BY_HAND = {
    "allreduce of a list": lambda group, own: group.allreduce([own], dist.ReduceOp.MAX),
    "allreduce": lambda group, own: group.allreduce(own, dist.ReduceOp.MAX),
    "allreduce by name": lambda group, own: group.allreduce([own], op=dist.ReduceOp.MAX),
    "broadcast": lambda group, own: group.broadcast(own, size() - 1),
    "broadcast by name": lambda group, own: group.broadcast(own, root=size() - 1),
    "scatter": lambda group, own: group.scatter(
        own, [torch.full((2,), size() - 1.0)] * size() if rank() == 0 else [], 0
    ),
    "reduce_scatter": lambda group, own: group.reduce_scatter(
        own, [torch.full((2,), float(rank()))] * size(), dist.ReduceOp.MAX
    ),
}


@pytest.mark.parametrize("call", BY_HAND)
def test_the_methods_of_a_group_take_tensors_operations_and_roots(call):
    own = torch.full((2,), float(rank()))
    BY_HAND[call](dist.group.WORLD, own).wait()
    assert own.tolist() == [size() - 1.0] * 2


def test_the_gathering_methods_of_a_group_take_tensors():
    own = torch.full((2,), float(rank()))
    gathered = [torch.zeros(2) for _ in range(size())]
    dist.group.WORLD.allgather(gathered, own).wait()
    assert [one.tolist() for one in gathered] == of_ranks(lambda r: [r, r])
    dist.group.WORLD.broadcast([sent := torch.full((2,), float(rank()))]).wait()
    assert sent.tolist() == [0, 0]  # rank 0 is the root, if none is named
    reduced = torch.full((2,), float(rank()))
    dist.group.WORLD.reduce(reduced, 0, dist.ReduceOp.MAX).wait()
    assert reduced.tolist() == [size() - 1.0 if rank() == 0 else rank()] * 2
    on_root = [torch.zeros(2) for _ in range(size())] if rank() == 0 else []
    dist.group.WORLD.gather(on_root, own, 0).wait()
    assert [one.tolist() for one in on_root] == (of_ranks(lambda r: [r, r]) if rank() == 0 else [])
