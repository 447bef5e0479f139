# Groups of torch.distributed over the backend "hvd": how they are made, what they refuse, and those
# with changing members.
import contextlib
import datetime
import inspect
import itertools

import pytest
import torch
import torch.distributed as dist
from torch_backend import (
    VERSION,
    all_handles,
    around,
    changing,
    check_it_works,
    other_backend,
    rank,
    reconfigure,
    size,
    uuids,
)

import hvd.torch as hvd
from hvd.errors import NotAMemberError

pytestmark = pytest.mark.usefixtures("backend")


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


def test_a_group_counts_its_collectives():
    before = dist.group.WORLD._get_sequence_number_for_group()
    dist.barrier()
    check_it_works()
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 2


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


def orders():
    """All of the world, and at the end some of it."""
    return [*itertools.permutations(range(size())), (size() - 1, 0)[: size()]]


def at_place(make, ranks):
    return [make(one) for one in ranks]


def check_gathers(group, ranks):
    own = torch.tensor([rank(), -rank()])
    gathered = [torch.zeros_like(own) for _ in ranks]
    dist.all_gather(gathered, own, group=group)
    assert [one.tolist() for one in gathered] == at_place(lambda r: [r, -r], ranks)
    whole = torch.zeros(len(ranks), dtype=own.dtype)
    dist.all_gather_into_tensor(whole, own[:1], group=group)
    assert whole.tolist() == list(ranks)
    root = ranks[-1]
    on_root = [torch.zeros_like(own) for _ in ranks] if rank() == root else None
    dist.gather(own, on_root, root, group=group)
    assert on_root is None or torch.stack(on_root)[:, 0].tolist() == list(ranks)
    tensor = torch.tensor([rank()])
    dist.broadcast(tensor, root, group=group)
    assert tensor.item() == root


def check_scatters(group, ranks):
    own, root = torch.zeros(1), ranks[0]
    parts = at_place(lambda r: torch.tensor([r + 0.5]), ranks)
    dist.scatter(own, parts if rank() == root else None, root, group=group)
    assert own.item() == rank() + 0.5
    dist.reduce_scatter(own, parts, group=group)
    assert own.item() == (rank() + 0.5) * len(ranks)
    numbers = torch.tensor(ranks)
    for op, expected in (("SUM", rank() * len(ranks)), ("BOR", rank())):
        one = torch.zeros(1, dtype=numbers.dtype)
        dist.reduce_scatter_tensor(one, numbers, getattr(dist.ReduceOp, op), group=group)
        assert one.item() == expected


def check_exchanges(group, ranks):
    # From rank a to rank b go b + 1 times 10 a + b.
    lengths = at_place(lambda r: r + 1, ranks)
    sent = at_place(lambda r: torch.full((r + 1,), 10.0 * rank() + r), ranks)
    expected = [torch.full((rank() + 1,), 10.0 * r + rank()) for r in ranks]
    received = [torch.zeros(rank() + 1) for _ in ranks]
    dist.all_to_all(received, sent, group=group)
    assert all(map(torch.equal, received, expected))
    whole = torch.zeros(len(ranks) * (rank() + 1))
    own = [rank() + 1] * len(ranks)
    dist.all_to_all_single(whole, torch.cat(sent), own, lengths, group=group)
    assert torch.equal(whole, torch.cat(expected))


def check_messages(group, ranks):
    place = ranks.index(rank())
    sent = dist.isend(torch.tensor([rank()]), ranks[(place + 1) % len(ranks)], group=group)
    received = torch.zeros(1, dtype=torch.int64)
    dist.recv(received, ranks[place - 1], group=group)
    sent.wait()
    assert received.item() == ranks[place - 1]


@pytest.mark.skipif(
    "sort_ranks" not in inspect.signature(dist.new_group).parameters,
    reason="this torch sorts the ranks of each group",
)
def test_ranks_of_a_group_stand_in_the_order_of_the_program():
    for ranks in orders():
        group = dist.new_group(ranks, sort_ranks=False)
        if rank() not in ranks:
            continue
        assert dist.get_rank(group) == ranks.index(rank())
        assert dist.get_process_group_ranks(group) == list(ranks)
        check_gathers(group, ranks)
        check_scatters(group, ranks)
        check_exchanges(group, ranks)
        if len(ranks) > 1:
            check_messages(group, ranks)
    assert dist.get_rank(dist.new_group(list(reversed(range(size()))))) == rank()


def test_ranks_of_a_group_are_named_once():
    message = "named twice|duplicate" if size() > 1 else "world size|duplicate"
    with pytest.raises((ValueError, RuntimeError), match=message):
        dist.new_group([size() - 1] * 2)
    check_it_works()


def local_group(ranks, **options):
    """A group that its members make alone, from the version of torch on that has such groups."""
    if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
        pytest.skip("this torch has all ranks make each group")
    return dist.new_group(ranks, use_local_synchronization=True, **options)


@pytest.mark.parametrize("barrier", ["0", "1"])
def test_members_make_a_group_while_the_others_go_on(monkeypatch, barrier):
    monkeypatch.setenv("TORCH_DIST_INIT_BARRIER", barrier)
    pairs = [(size() - 1, 0), (0, 1), (1, 2)]
    for pair in [{*one} for one in pairs if max(one) < size() and rank() in one]:
        group = local_group(sorted(pair))
        tensor = torch.full((1,), float(rank()))
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == sum(pair)
        again = local_group(sorted(pair))
        dist.barrier(again)
    # All ranks together may have a group of the same ranks.
    together = dist.new_group([0])
    if rank() == 0:
        dist.barrier(together)
    check_it_works()


def test_members_of_a_process_set_add_and_remove_it_alone():
    if size() < 2:
        pytest.skip("needs two ranks")
    if rank() < 2:
        pair = hvd.add_process_set([0, 1], by_members=True)
        assert pair.ranks == [0, 1]
        assert hvd.allgather_object(rank(), process_set=pair) == [0, 1]
    elif rank() == 2:
        with pytest.raises(NotAMemberError, match="rank 2 is not one of the members"):
            hvd.add_process_set([0, 1], by_members=True)
    check_it_works()
    if rank() < 2:
        assert hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="does not shrink"):
        hvd.add_process_set([rank()], by_members=True, shrink=True)
    hvd.barrier()
    assert len(hvd.process_set_ids()) >= 1


@pytest.mark.skipif(not hasattr(dist, "split_group"), reason="this torch splits no groups")
def test_a_group_is_split():
    if VERSION < (2, 15):
        with pytest.raises(RuntimeError, match="split"):
            dist.split_group(split_ranks=[[0]])
        return
    halves = [list(range(size()))[::-1][half::2] for half in (0, 1)]
    part = dist.split_group(split_ranks=[half for half in halves if half])
    own = next(half for half in halves if rank() in half)
    assert dist.get_process_group_ranks(part) == own
    assert dist.get_rank(part) == own.index(rank())
    check_gathers(part, own)
    check_scatters(part, own)
    first = dist.split_group(part, split_ranks=[[0]], timeout=datetime.timedelta(seconds=60))
    if rank() == own[0]:
        dist.barrier(first)
    else:
        assert first == dist.GroupMember.NON_GROUP_MEMBER
    check_it_works()


def limit(seconds):
    return datetime.timedelta(seconds=seconds)


def test_a_call_has_a_limit_of_time():
    if size() == 1:
        pytest.skip("nobody can be late")
    tensor = torch.ones(1)
    if rank() != 0:
        hvd.barrier()
        dist.all_reduce(tensor)
    else:
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(RuntimeError, match=r"is not done within its limit of 0.2 s: some rank"):
            work.wait(limit(0.2))
        hvd.barrier()
        assert work.wait(limit(60))
    assert tensor.item() == size()


@pytest.mark.parametrize("call", ["allreduce", "barrier", "recv"])
def test_a_group_has_a_limit_of_time(call):
    if size() == 1:
        pytest.skip("nobody can be late")
    group = dist.new_group(timeout=limit(0.2))
    tensor = torch.ones(1)
    calls = {
        "allreduce": lambda: dist.all_reduce(tensor, group=group),
        "barrier": lambda: dist.barrier(group),
        "recv": lambda: dist.recv(tensor, 1, group=group),
    }
    if rank() == 0:
        with pytest.raises(RuntimeError, match=f"{call}.* is not done within its limit of 0.2 s"):
            calls[call]()
    hvd.barrier()
    # What was late is done in the end.
    if rank() == 1 and call == "recv":
        dist.send(torch.zeros(1), 0, group=group)
    elif rank() != 0 and call != "recv":
        with contextlib.suppress(RuntimeError):  # another rank may be slower than the limit
            calls[call]()
    hvd.barrier()


def test_a_monitored_barrier_names_the_ranks_that_are_late():
    backend = dist.distributed_c10d._get_default_group()
    if VERSION < (2, 15):
        with pytest.raises((ValueError, RuntimeError), match="GLOO"):
            dist.monitored_barrier()
        barrier = backend.monitored_barrier
    else:
        barrier = dist.monitored_barrier
    for _ in range(3):
        barrier(timeout=limit(60))
    if size() == 1:
        return
    hvd.barrier()
    if rank() == size() - 1:
        hvd.barrier()
    with pytest.raises(RuntimeError, match=f": rank {size() - 1} of the group did not come within"):
        barrier(timeout=limit(3), wait_all_ranks=True)
    if rank() != size() - 1:
        hvd.barrier()
    barrier(timeout=limit(60))
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


# Mistakes that all ranks make in the same way: the call, and parts of its error message.
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


# --- groups with changing members ----------------------------------------------------------------


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
    assert group._get_sequence_number_for_group() == 0
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
    dist.destroy_process_group()
    with pytest.raises(ValueError, match='one backend alone, not "cpu:gloo,cuda:hvd"'):
        dist.init_process_group("cpu:gloo,cuda:hvd", enable_reconfigure=True)
    dist.init_process_group("hvd")


@changing
def test_a_changing_group_says_that_it_has_no_store(group):
    store = group.get_group_store()
    for call in (lambda: store.set("a", "b"), lambda: store.get("a"), lambda: store.add("a", 1)):
        with pytest.raises(NotImplementedError, match="has no store"):
            call()


@pytest.fixture
def detailed_debugging():
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    yield
    dist.set_debug_level_from_env()


def test_groups_work_while_torch_debugs_in_detail(detailed_debugging):
    with other_backend():
        check_it_works()
        last = dist.new_group([size() - 1])
        if rank() == size() - 1:
            dist.barrier(last)
        by_gloo = dist.new_group(backend="gloo")  # torch's wrapper is around this one
        own = torch.ones(1)
        dist.all_reduce(own, group=by_gloo)
        assert own.item() == size()


@changing
def test_a_changing_group_works_while_torch_debugs_in_detail(detailed_debugging, group):
    reconfigure()
    check_it_works()


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
    with caught if is_first else contextlib.nullcontext(), registration.barrier_afterwards():
        if is_first:
            raise RuntimeError("an error of torch")
    check_it_works()
