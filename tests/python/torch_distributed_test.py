# torch.distributed over the backend "hvd", called as programs for DistributedDataParallel do.
import contextlib
import datetime
import inspect
import itertools
import warnings

import pytest
import torch
import torch.distributed as dist

import hvd.torch as hvd

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
TYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8]


@pytest.fixture(scope="module", autouse=True)
def backend():
    dist.init_process_group("hvd")
    yield
    dist.destroy_process_group()
    hvd.shutdown()


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def of_ranks(make):
    return [make(r) for r in range(size())]


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


def test_an_operation_that_hvd_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="not by BXOR"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR)


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
    gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    output = torch.zeros(size() * 2, 3)
    gather(output, torch.full((2, 3), float(rank())))
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
    scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    given = torch.arange(size() * 2, dtype=torch.float32) * (rank() + 1)
    output = torch.zeros(2)
    scatter(output, given)
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
    """What has torch's methods for several tensors at once."""
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
    assert work.is_completed() or VERSION >= (2, 15)
    assert outputs[1].tolist() == [float(size())]
    with pytest.raises(RuntimeError, match="shape"):
        work.get_future().wait()
    works = group.reduce_scatter_tensor_coalesced([], [])
    works.wait()
    assert works.get_future().done()


def around():
    return (rank() + 1) % size(), (rank() - 1) % size()


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


@pytest.mark.skipif(VERSION >= (2, 15), reason="torch 2.15 does not ask a Work in Python")
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


def test_each_property_of_a_backend_can_be_asked_for():
    kind = torch._C._distributed_c10d.ProcessGroup
    kind = getattr(torch._C._distributed_c10d, "Backend", kind)
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    for name in dir(kind):
        if isinstance(getattr(kind, name), property):
            try:
                getattr(backend, name)
            except RuntimeError as error:  # of a build without what it needs
                assert name == "mem_allocator", error


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


@pytest.mark.parametrize("schedule", ["fill_drain", "one_forward_one_backward"])
def test_a_pipeline_learns_as_the_whole_model(schedule):
    """Each rank holds one layer. Activations travel forward, their gradients back."""
    first, last, batches = rank() == 0, rank() == size() - 1, 6
    torch.manual_seed(5)
    layers = [torch.nn.Linear(8, 8) for _ in range(size())]
    samples = torch.randn(batches, 4, 8)
    whole = [torch.nn.Linear(8, 8) for _ in layers]
    for copy, layer in zip(whole, layers):
        copy.load_state_dict(layer.state_dict())
    outputs = samples.reshape(-1, 8)
    for layer in whole:
        outputs = layer(outputs).tanh()
    (outputs.pow(2).sum()).backward()

    layer, inputs, results, sends = layers[rank()], [], [], []

    def forward(batch):
        given = samples[batch].clone() if first else torch.empty(4, 8)
        if not first:
            dist.recv(given, rank() - 1)
            given.requires_grad_()
        result = layer(given).tanh()
        inputs.append(given)
        results.append(result)
        if not last:
            sends.append((result, dist.isend(result.detach(), rank() + 1)))

    def backward(batch):
        if last:
            results[batch].pow(2).sum().backward()
        else:
            gradient = torch.empty(4, 8)
            dist.recv(gradient, rank() + 1)
            results[batch].backward(gradient)
        if not first:
            sends.append((inputs[batch], dist.isend(inputs[batch].grad, rank() - 1)))

    if schedule == "fill_drain":
        steps = [(forward, b) for b in range(batches)] + [(backward, b) for b in range(batches)]
    else:
        ahead = min(size() - rank(), batches)
        steps = [(forward, b) for b in range(ahead)]
        for b in range(batches):
            steps.append((backward, b))
            if b + ahead < batches:
                steps.append((forward, b + ahead))
    for step, batch in steps:
        step(batch)
    for _, work in sends:
        work.wait()
    for own, alone in zip(layer.parameters(), whole[rank()].parameters()):
        assert torch.allclose(own.grad, alone.grad, atol=1e-5)


def test_the_store_of_a_later_rank_zero_is_on_its_own_host(monkeypatch):
    from hvd.torch.registration import _address_of_this_host

    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")  # the host of the first rank 0
    monkeypatch.setenv("HVD_RANK", "0")
    assert _address_of_this_host(["127.0.0.1", "192.0.2.1"]) == "192.0.2.1"
    monkeypatch.setenv("HVD_RANK", "2")
    assert _address_of_this_host(["127.0.0.1", None, "198.51.100.7"]) == "198.51.100.7"
    assert _address_of_this_host(["localhost", "127.0.0.1"]) == "localhost"


def test_a_store_that_cannot_be_had_is_an_error_on_all_ranks(monkeypatch):
    from hvd.torch import registration

    class Refused:
        def __init__(self, *arguments, **options):
            raise OSError("no store today")

    if rank() == size() - 1:
        monkeypatch.setattr(registration.c10d, "TCPStore", Refused)
    with pytest.raises(RuntimeError, match=f"rank {size() - 1} has no store.*no store today"):
        registration._make_store(datetime.timedelta(seconds=60))


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


def test_groups_of_some_ranks():
    even = dist.new_group([r for r in range(size()) if r % 2 == 0])
    last = dist.new_group([size() - 1])
    again = dist.new_group([r for r in range(size()) if r % 2 == 0])
    everybody = dist.new_group()
    if rank() % 2 == 0:
        for group in (even, again):
            tensor = torch.full((2,), float(rank()))
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [float(sum(range(0, size(), 2)))] * 2
        tensor = torch.full((1,), float(rank()))
        dist.broadcast(tensor, 0, group=even)
        assert tensor.item() == 0.0
    if rank() == size() - 1:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=last)
        assert tensor.item() == 1.0
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=everybody)
    assert tensor.item() == size()


def test_ranks_of_a_group_are_sorted():
    if size() < 2 or "sort_ranks" not in inspect.signature(dist.new_group).parameters:
        pytest.skip("needs two ranks, and a torch with sort_ranks")
    backwards = list(reversed(range(size())))
    with pytest.raises((ValueError, RuntimeError), match="must be sorted"):
        dist.new_group(backwards, sort_ranks=False)
    assert dist.get_world_size(dist.new_group(backwards)) == size()


def test_ranks_of_a_group_are_named_once():
    message = "named twice|duplicate" if size() > 1 else "world size|duplicate"
    with pytest.raises((ValueError, RuntimeError), match=message):
        dist.new_group([size() - 1] * 2)
    check_it_works()


def ones(*lengths):
    return [torch.ones(length) for length in lengths]


def gathers_into(output):
    gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    return lambda: gather(output, torch.ones(2))


def scatters_into(output, given):
    scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    return lambda: scatter(output, given)


def splits(output, received, given, sent):
    return lambda: dist.all_to_all_single(torch.zeros(output), torch.ones(given), received, sent)


def at(root, *given):
    return given if rank() == root else (None,) * len(given)


# What all ranks do wrong in the same way: what is called, and what the error names.
WRONG = {
    "all_gather, too many": lambda n: (
        lambda: dist.all_gather(ones(*[2] * (n + 1)), torch.ones(2)),
        f"tensor_list has {n + 1} items, but it must have {n}",
    ),
    "all_gather, too short": lambda n: (
        lambda: dist.all_gather(ones(*[1] * n), torch.ones(2)),
        "tensor_list has 1 elements, but 2 have come for it",
    ),
    "all_gather_into_tensor, size": lambda n: (
        gathers_into(torch.zeros(2 * n + 1)),
        f"output_tensor has {2 * n + 1} elements, but {2 * n} have come for it",
    ),
    "all_gather_into_tensor, type": lambda n: (
        gathers_into(torch.zeros(2 * n, dtype=torch.int64)),
        "output_tensor is of torch.int64, but the input is of torch.float32|same dtype",
    ),
    "gather, dst": lambda n: (lambda: dist.gather(torch.ones(2), None, n + 1), "dst is|not part"),
    "reduce, dst": lambda n: (lambda: dist.reduce(torch.ones(2), -1), "dst is -1|not part"),
    "broadcast, src": lambda n: (lambda: dist.broadcast(torch.ones(2), -1), "src is -1|not part"),
    "scatter, src": lambda n: (lambda: dist.scatter(torch.ones(2), None, n), "src is|not part"),
    "send, dst": lambda n: (lambda: dist.send(torch.ones(2), -n - 1), "dst is -|not part"),
    "recv, src": lambda n: (lambda: dist.recv(torch.ones(2), n + 5), "src is|not part"),
    "scatter, size": lambda n: (
        lambda: dist.scatter(torch.ones(3), *at(0, ones(*[2] * n))),
        "scatter: tensor has 3 elements, but 2 have come for it|Mismatched",
    ),
    "reduce_scatter, sizes": lambda n: (
        lambda: dist.reduce_scatter(torch.ones(1), ones(*range(1, n + 1), 9)),
        f"input_list has {n + 1} items, but it must have {n}",
    ),
    "reduce_scatter_tensor, input": lambda n: (
        scatters_into(torch.ones(1), torch.ones(2 * n + 1)),
        f"input has {2 * n + 1} elements, which {n} ranks cannot share|output has 1 elements",
    ),
    "reduce_scatter_tensor, output": lambda n: (
        scatters_into(torch.ones(3), torch.ones(2 * n)),
        "output has 3 elements, but 2 have come for it",
    ),
    "all_to_all, output": lambda n: (
        lambda: dist.all_to_all(ones(*[3] * n), ones(*[2] * n)),
        r"output_tensor_list must have \[2.* elements for what the ranks have sent, not \[3",
    ),
    "all_to_all, list": lambda n: (
        lambda: dist.all_to_all(ones(*[2] * (n + 1)), ones(*[2] * n)),
        f"output_tensor_list has {n + 1} items, but it must have {n}",
    ),
    "all_to_all_single, input": lambda n: (
        splits(n, None, 2 * n, [1] * n),
        f"input_split_sizes is .*, but the tensor has {2 * n} rows",
    ),
    "all_to_all_single, negative": lambda n: (
        splits(n, None, n, [-1, n + 1] + [0] * (n - 2)),
        "input_split_sizes (is|has) ",
    ),
    "all_to_all_single, output": lambda n: (
        splits(n, [1] * (n + 1), n, None),
        f"output_split_sizes has {n + 1} items, but it must have {n}",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_an_error_that_names_them(what):
    call, message = WRONG[what](size())
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()
    check_it_works()


@pytest.mark.parametrize("what", ["gather", "scatter"])
def test_a_list_of_the_root_has_a_tensor_for_each_rank(what):
    calls = {
        "gather": lambda: dist.gather(torch.ones(2), *at(0, ones(*[2] * (size() + 1)))),
        "scatter": lambda: dist.scatter(torch.ones(2), *at(0, ones(*[2] * (size() + 1)))),
    }
    if rank() == 0:  # the others would wait for it
        with pytest.raises(ValueError, match=f"{what}_list has {size() + 1} items"):
            calls[what]()
    check_it_works()


def test_unequal_splits_that_do_not_fit_are_an_error():
    if size() == 1:
        pytest.skip("it takes two")
    n = size()
    call = splits(n, [0, 2] + [1] * (n - 2), n, [1] * n)
    with pytest.raises(ValueError, match=r"output must have \[1, 1.*, not \[0, 2"):
        call()
    check_it_works()


def test_shapes_that_differ_are_an_error_at_all_ranks():
    if size() < 2:
        pytest.skip("needs two ranks")
    with pytest.raises(RuntimeError, match="shape"):
        dist.all_reduce(torch.zeros(rank() + 1))
    outputs = [torch.zeros(1) for _ in range(size())]
    with pytest.raises(RuntimeError, match="shape"):
        dist.all_gather(outputs, torch.zeros(rank() + 1))
    future = dist.all_reduce(torch.zeros(rank() + 1), async_op=True).get_future()
    with pytest.raises(RuntimeError, match="shape"):
        future.wait()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # and the group goes on
    assert tensor.item() == size()


def sample(of_rank):
    return torch.arange(12, dtype=torch.float64).reshape(3, 4) + of_rank


def model():
    torch.manual_seed(7)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    return torch.nn.Sequential(*layers).double()


# So small a bucket makes several of them.
@pytest.mark.parametrize("arguments", [{}, {"bucket_cap_mb": 0.0001}, {"static_graph": True}])
def test_distributed_data_parallel_trains_as_one_process_on_all_samples(arguments):
    parallel = torch.nn.parallel.DistributedDataParallel(model(), **arguments)
    alone = model()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (parallel, alone)]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(sample(rank() + step)).mean().backward()
        (sum(alone(sample(r + step)).mean() for r in range(size())) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    for ours, theirs in zip(parallel.module.parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_distributed_data_parallel_with_sparse_gradients():
    def embedding():
        torch.manual_seed(3)
        return torch.nn.EmbeddingBag(10, 3, sparse=True).double()

    parallel, alone = torch.nn.parallel.DistributedDataParallel(embedding()), embedding()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (parallel, alone)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(torch.tensor([[rank(), 5 + step]])).pow(2).sum().backward()
        losses = of_ranks(lambda r, s=step: alone(torch.tensor([[r, 5 + s]])).pow(2).sum())
        (sum(losses) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(parallel.module.weight, alone.weight, rtol=1e-12, atol=1e-12)


def test_distributed_data_parallel_starts_from_the_weights_of_rank_zero():
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, float(rank()))
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    assert parallel.module.weight.tolist() == [[0.0, 0.0]] * 2


def test_distributed_data_parallel_sends_low_ranks_by_powersgd():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model(torch.ones(2, 16)).sum().backward()
    # The gradient is of rank one, and the same on all ranks.
    assert torch.allclose(model.module.weight.grad, torch.full((16, 16), 8.0), rtol=1e-3)


def test_distributed_data_parallel_joins_with_parameters_that_some_do_not_use():
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(4, 2), find_unused_parameters=True
    )
    with model.join():
        for _ in range(1 + rank()):
            model(torch.ones(3, 4)).sum().backward()


def test_distributed_data_parallel_without_synchronization():
    layer = torch.nn.Linear(2, 1, bias=False)
    parallel = torch.nn.parallel.DistributedDataParallel(layer)
    with parallel.no_sync():
        parallel(torch.full((1, 2), rank() + 1.0)).sum().backward()
    assert layer.weight.grad.tolist() == [[rank() + 1.0] * 2]
    parallel(torch.zeros(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[sum(of_ranks(lambda r: r + 1)) / size()] * 2]


def test_distributed_data_parallel_with_parameters_that_some_do_not_use():
    torch.manual_seed(1)
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False) for _ in range(2)])

    class Either(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, tensor):
            return self.layers[rank() % 2](tensor)

    parallel = torch.nn.parallel.DistributedDataParallel(Either(), find_unused_parameters=True)
    parallel(torch.ones(1, 2)).sum().backward()
    share = len(range(0, size(), 2)) / size()
    assert torch.allclose(layers[0].weight.grad, torch.full((1, 2), share))
    if size() > 1:
        assert torch.allclose(layers[1].weight.grad, torch.full((1, 2), 1 - share))


@pytest.mark.skipif(VERSION < (2, 15), reason="FSDP needs a backend, in Python from 2.15 on")
@pytest.mark.parametrize("kind", ["fully_shard", "FullyShardedDataParallel"])
def test_fully_sharded_training_is_that_of_one_process_on_all_samples(kind):
    from torch.distributed import fsdp

    sharded, alone = model(), model()
    if kind == "fully_shard":
        mesh = dist.init_device_mesh("cpu", (size(),))
        for layer in sharded:
            if isinstance(layer, torch.nn.Linear):
                fsdp.fully_shard(layer, mesh=mesh)
        fsdp.fully_shard(sharded, mesh=mesh)
    else:
        sharded = fsdp.FullyShardedDataParallel(sharded, device_id=torch.device("cpu"))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (sharded, alone)]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        sharded(sample(rank() + step)).mean().backward()
        (sum(alone(sample(r + step)).mean() for r in range(size())) / size()).backward()
        for optimizer in optimizers:
            optimizer.step()
    inputs = sample(100)
    assert torch.allclose(sharded(inputs), alone(inputs), rtol=1e-9, atol=1e-9)


# --- groups whose members change -----------------------------------------------------------------

changing = pytest.mark.skipif(VERSION < (2, 15), reason="torch has reconfigure from 2.15 on")
uuids = itertools.count(1)


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


@pytest.fixture
def group():
    """A group that has had no reconfigure() yet."""
    with other_backend(enable_reconfigure=True):
        yield dist.group.WORLD


def all_handles():
    return hvd.allgather_object(dist._get_reconfigure_handle())


def reconfigure(handles=None, uuid=None, seconds=60):
    uuid = next(uuids) if uuid is None else uuid
    handles = all_handles() if handles is None else handles
    return dist._reconfigure(uuid, handles, timeout=datetime.timedelta(seconds=seconds)).wait()


def check_it_works():
    tensor = torch.full((3,), float(rank()))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(sum(range(size())))] * 3


@changing
def test_a_group_says_whether_it_can_be_reconfigured(group):
    backend = group._get_backend(torch.device("cpu"))
    assert dist._supports_reconfigure() and backend.supports_reconfigure
    assert dist._get_reconfigure_handle() == backend.get_reconfigure_handle()
    assert (rank(), size()) == (hvd.rank(), hvd.size())


@changing
def test_a_group_of_one_world_refuses():
    assert not dist._supports_reconfigure()
    for call in (dist._get_reconfigure_handle, lambda: dist._reconfigure(1, ["hvd:"])):
        with pytest.raises(RuntimeError, match="enable_reconfigure=True"):
            call()
    check_it_works()


@changing
def test_a_group_waits_for_its_first_reconfigure(group):
    backend = group._get_backend(torch.device("cpu"))
    for call in (
        lambda: dist.all_reduce(torch.ones(1)),
        dist.barrier,
        lambda: backend.send([torch.ones(1)], 0, 0),
    ):
        with pytest.raises(RuntimeError, match="waits for its first reconfigure"):
            call()
    assert reconfigure()
    check_it_works()


@changing
@pytest.mark.parametrize("kind", [list, set])
def test_a_group_is_reconfigured_in_the_same_world_again(group, kind):
    for _ in range(3):
        reconfigure(kind(all_handles()))
        assert dist.group.WORLD is group
        assert (rank(), size()) == (hvd.rank(), hvd.size())
        assert dist.get_process_group_ranks(group) == list(range(size()))
        check_it_works()
    dist.barrier()
    if size() > 1:
        after, before = around()
        work = dist.isend(torch.tensor([rank()]), after)
        received = torch.zeros(1, dtype=torch.int64)
        dist.recv(received, before)
        work.wait()
        assert received.item() == before


@changing
def test_a_reconfigured_group_has_groups_within(group):
    reconfigure()
    last = dist.new_group([size() - 1])
    if rank() == size() - 1:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=last)
        assert tensor.item() == 1.0


@changing
def test_distributed_data_parallel_trains_over_a_reconfigured_group(group):
    reconfigure()
    arguments = {"init_sync": False, "find_unused_parameters": True, "bucket_cap_mb": 0.0001}
    test_distributed_data_parallel_trains_as_one_process_on_all_samples(arguments)
    test_distributed_data_parallel_trains_as_one_process_on_all_samples({})


@changing
def test_fully_sharded_training_over_a_reconfigured_group(group):
    reconfigure()
    test_fully_sharded_training_is_that_of_one_process_on_all_samples("fully_shard")


def in_world(handle, generation):
    job, rank_and_worker = handle.split(":")[1], handle.split(":", 3)[3]
    return f"hvd:{job}:{generation}:{rank_and_worker}"


BAD_HANDLES = {
    "none": (lambda handles: [], "no handles are given"),
    "another backend's": (lambda handles: ["gloo:0:-1:0:"], '"gloo:0:-1:0:" is not a handle'),
    "no number": (lambda handles: ["hvd:a:b:0:c#0"], '"hvd:a:b:0:c#0" is not a handle'),
    "an earlier world's": (
        lambda handles: [in_world(one, 77) for one in handles],
        "the handle of rank 0 on .*#0 is of world 77, but this is world 1: exchange new handles",
    ),
    "another job's": (
        lambda handles: [*handles, "hvd:123:1:5:other#2"],
        "the handle of rank 5 on other#2 is of another job, 123",
    ),
    "a stranger's": (
        lambda handles: [*handles, handles[0].replace(":1:0:", ":1:9:").replace("#0", "#4")],
        "rank 9 on .*#4 is not a member of world 1",
    ),
    "one twice": (lambda handles: [*handles, handles[-1]], "a handle is given twice"),
    "one missing": (
        lambda handles: handles[:-1] or handles[1:],
        "rank . on .* is a member of world 1, but its handle is not given|no handles",
    ),
    "in another order": (
        lambda handles: handles[1:] + handles[:1],
        "the handle of rank 1 on .*#1 is at position 0",
    ),
}


@changing
@pytest.mark.parametrize("what", BAD_HANDLES)
def test_bad_handles_are_an_error_that_says_which(group, what):
    change, message = BAD_HANDLES[what]
    if what == "in another order" and size() == 1:
        pytest.skip("one handle has one order")
    with pytest.raises(ValueError, match=message):
        reconfigure(change(all_handles()))
    with pytest.raises(RuntimeError, match="waits for its first reconfigure"):
        dist.all_reduce(torch.ones(1))
    reconfigure()
    check_it_works()


@changing
def test_bad_handles_of_one_rank_are_an_error_of_all(group):
    reconfigure()
    handles = all_handles()
    with pytest.raises(ValueError) as caught:
        reconfigure(["a", "b"] if rank() == size() - 1 else handles)
    assert '"a" is not a handle of hvd' in str(caught.value)
    if rank() != size() - 1:
        assert f"failed on rank {size() - 1} on " in str(caught.value)
    check_it_works()  # as before


@changing
def test_a_uuid_is_used_once(group):
    uuid = next(uuids)
    reconfigure(uuid=uuid)
    with pytest.raises(ValueError, match=f"uuid {uuid} was used before"):
        reconfigure(uuid=uuid)
    check_it_works()


@changing
def test_reconfigure_waits_no_longer_than_it_is_told_to(group):
    if size() == 1:
        pytest.skip("nobody can be late")
    handles, uuid = all_handles(), next(uuids)
    if rank() == 0:
        with pytest.raises(TimeoutError, match="some member of world 1 has not called it"):
            reconfigure(handles, uuid, seconds=0.2)
    hvd.barrier()
    reconfigure()
    check_it_works()


@changing
def test_a_changing_group_has_one_backend():
    with pytest.raises(ValueError, match='one backend alone, not "cpu:gloo,cuda:hvd"'):
        dist.init_process_group("cpu:gloo,cuda:hvd", enable_reconfigure=True)


@changing
def test_a_changing_group_says_that_it_has_no_store(group):
    store = group.get_group_store()
    for call in (lambda: store.set("a", "b"), lambda: store.get("a"), lambda: store.add("a", 1)):
        with pytest.raises(NotImplementedError, match="has no store"):
            call()


@pytest.mark.parametrize("place", [{"rank": 7}, {"world_size": 7}, {"rank": 7, "world_size": 9}])
def test_a_wrong_place_is_an_error(place):
    dist.destroy_process_group()
    with pytest.raises(ValueError, match=f"but this is rank {hvd.rank()} of {hvd.size()}"):
        dist.init_process_group("hvd", **place)
    dist.init_process_group("hvd", rank=hvd.rank(), world_size=hvd.size())


def test_it_can_be_made_again_and_again():
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("hvd")
        dist.destroy_process_group()  # at once: rank 0 holds the store of the others
        dist.init_process_group("hvd")
        group = dist.new_group()
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == size()


def test_a_group_that_is_there_is_not_made_again():
    if rank() == 0:  # alone: nobody is waited for
        with pytest.raises((RuntimeError, ValueError), match="twice"):
            dist.init_process_group("hvd")
    check_it_works()


def test_a_rank_whose_call_has_failed_holds_up_no_other(monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("not today")

    is_first = rank() == 0
    # Newer versions of torch let the ranks meet only if they are told to.
    monkeypatch.setenv("TORCH_DIST_INIT_BARRIER", "1")
    dist.destroy_process_group()
    with monkeypatch.context() as patch:
        if is_first:
            patch.setattr(dist.distributed_c10d, "_store_based_barrier", refuse)
        caught = pytest.raises(ValueError, match="not today")
        with caught if is_first else contextlib.nullcontext():
            dist.init_process_group("hvd")
    dist.destroy_process_group()
    dist.init_process_group("hvd")
    check_it_works()


def test_an_error_of_torch_in_a_world_that_goes_on_stays_what_it_is():
    from hvd.torch import registration

    is_first = rank() == 0
    caught = pytest.raises(RuntimeError, match="of torch")
    with caught if is_first else contextlib.nullcontext(), registration.meeting_afterwards():
        if is_first:
            raise RuntimeError("an error of torch")
    check_it_works()
