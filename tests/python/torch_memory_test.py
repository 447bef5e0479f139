# The memory of tensors whose program frees, replaces, resizes, moves and drops them while hvd works
# on it. The last rank begins its part when all others have done that.
import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")

COUNT = 100_000  # elements, beyond what travels in pieces that are packed


def is_last():
    return hvd.rank() == hvd.size() - 1


def in_flight(start, disturb):
    """``disturb(start())`` on all ranks but the last, which starts when they have done that."""
    token = torch.zeros(1)
    if not is_last():
        try:
            return disturb(start())
        finally:
            hvd.send(token, hvd.size() - 1)
    for rank in range(hvd.size() - 1):
        hvd.recv(token, rank)
    return disturb(start())


class Strangers:
    """Tensors of the program's own, where freed memory was. Nobody else may write there."""

    def __init__(self, like, count=8):
        self.tensors = [
            torch.full_like(like, 7, memory_format=torch.contiguous_format) for _ in range(count)
        ]

    def check(self):
        hvd.barrier()  # what came before it is done
        assert all((tensor == 7).all() for tensor in self.tensors)


def ones(dtype=torch.float32):
    return torch.ones(COUNT, dtype=dtype)


CALLS = {
    "allreduce": lambda tensor: hvd.allreduce_async(tensor, op=hvd.Sum),
    "allreduce in place": lambda tensor: hvd.allreduce_async_(tensor, op=hvd.Sum),
    "grouped allreduce": lambda tensor: hvd.grouped_allreduce_async([tensor], op=hvd.Sum),
    "grouped allreduce in place": lambda tensor: hvd.grouped_allreduce_async_([tensor], op=hvd.Sum),
    "broadcast": lambda tensor: hvd.broadcast_async(tensor, 0),
    "broadcast in place": lambda tensor: hvd.broadcast_async_(tensor, 0),
    "broadcast of the last": lambda tensor: hvd.broadcast_async_(tensor, hvd.size() - 1),
    "allgather": hvd.allgather_async,
    "grouped allgather": lambda tensor: hvd.grouped_allgather_async([tensor]),
    "alltoall": hvd.alltoall_async,
    "reducescatter": lambda tensor: hvd.reducescatter_async(tensor, op=hvd.Sum),
    "grouped reducescatter": lambda tensor: hvd.grouped_reducescatter_async([tensor]),
    "sparse allreduce": lambda tensor: hvd.sparse_allreduce_async(
        tensor[:, :1].to_sparse(1), "sparse", hvd.Sum
    ),
}


@pytest.mark.parametrize("kind", ["dense", "scattered"])
@pytest.mark.parametrize("call", list(CALLS))
def test_a_handle_and_its_tensors_are_dropped(call, kind):
    shape = (hvd.size() * 500, 100)

    def start_and_drop():
        CALLS[call](torch.ones(shape) if kind == "dense" else torch.ones(shape[::-1]).t())

    in_flight(start_and_drop, lambda _: Strangers(torch.empty(shape))).check()


def test_results_outlive_all_else():
    shape = (hvd.size() * 500, 100)

    def start():
        tensor = torch.full(shape, hvd.rank() + 1.0)
        return [
            call(tensor)
            for call in (hvd.allgather_async, hvd.alltoall_async, hvd.reducescatter_async)
        ]

    def finish(handles):
        gathered, (exchanged, received), scattered = [hvd.synchronize(one) for one in handles]
        handles.clear()
        return gathered[1:], exchanged[1:], received, scattered[1:]

    if is_last():
        results = in_flight(start, finish)
    else:
        held = in_flight(start, lambda handles: handles)
        results = finish(held)
    strangers = Strangers(torch.empty(shape))
    gathered, exchanged, received, scattered = results
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    wanted = torch.arange(1.0, hvd.size() + 1).repeat_interleave(hvd.size() * 500)
    assert torch.equal(gathered[:, 5], wanted[1:])
    assert torch.equal(
        exchanged[:, 5], torch.arange(1.0, hvd.size() + 1).repeat_interleave(500)[1:]
    )
    assert received.tolist() == [500] * hvd.size()
    assert (scattered == mean).all()
    strangers.check()


def replaced_data(tensor):
    tensor.data = torch.zeros(COUNT)


def replaced_storage(tensor):
    tensor.set_(torch.zeros(COUNT))


def moved_to_another_type(tensor):
    tensor.data = tensor.data.double()


@pytest.mark.parametrize("disturb", [replaced_data, replaced_storage, moved_to_another_type])
def test_a_tensor_gets_other_memory(disturb):
    tensor = ones()
    strangers = None

    def act(handle):
        nonlocal strangers
        disturb(tensor)
        strangers = Strangers(ones())
        return handle

    handle = in_flight(lambda: hvd.allreduce_async_(tensor, op=hvd.Sum), act)
    assert hvd.synchronize(handle) is tensor
    assert (tensor == hvd.size()).all()
    strangers.check()


def test_a_module_changes_its_type():
    layer = torch.nn.Linear(1000, 300, bias=False)
    torch.nn.init.ones_(layer.weight)
    strangers = None

    def act(handle):
        nonlocal strangers
        layer.double()
        strangers = Strangers(torch.empty(300, 1000))
        return handle

    handle = in_flight(lambda: hvd.allreduce_async_(layer.weight, op=hvd.Sum), act)
    hvd.synchronize(handle)
    assert layer.weight.dtype == torch.float64 and (layer.weight == hvd.size()).all()
    strangers.check()


@pytest.mark.parametrize(
    "start",
    [
        lambda tensor: hvd.allreduce_async_(tensor, op=hvd.Sum),
        lambda tensor: hvd.allreduce_async(tensor, op=hvd.Sum),
        lambda tensor: hvd.grouped_allreduce_async_([tensor], op=hvd.Sum),
        lambda tensor: hvd.broadcast_async_(tensor, root_rank=0),
        lambda tensor: hvd.allgather_async(tensor=tensor),
    ],
)
def test_memory_in_flight_cannot_be_resized(start):
    tensor = ones()

    def resize(handle):
        # Of views, since older versions of torch change the shape before they refuse.
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.detach().resize_(4 * COUNT)
        with pytest.raises(RuntimeError, match="not resizable"):
            torch.arange(4.0 * COUNT, out=tensor.detach())
        return handle

    hvd.synchronize(in_flight(lambda: start(tensor), resize))


def test_tensors_of_calls_that_wait_can_be_resized_afterwards():
    tensor = torch.ones(2)
    for count in (3, 1000, COUNT):
        tensor.resize_(count).fill_(1)
        assert (hvd.allreduce_(tensor, op=hvd.Sum) == hvd.size()).all()
        assert (hvd.allreduce(tensor, op=hvd.Min) == hvd.size()).all()
        hvd.broadcast_parameters({"tensor": tensor}, root_rank=0)


@pytest.mark.parametrize("sends", [True, False])
def test_one_side_of_a_message_drops_it(sends):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    tensor = ones()
    strangers = None
    if hvd.rank() == 0:
        handle = (
            hvd.send_async(tensor, 1, "message") if sends else hvd.recv_async(tensor, 1, "message")
        )
        del handle, tensor
        strangers = Strangers(ones())
        hvd.send(torch.zeros(1), 1, "go")
    elif hvd.rank() == 1:
        hvd.recv(torch.zeros(1), 0, "go")
        if sends:
            hvd.recv(tensor.zero_(), 0, "message")
            assert (tensor == 1).all()
        else:
            hvd.send(tensor, 0, "message")
    hvd.barrier()
    if strangers is not None:
        assert all((one == 7).all() for one in strangers.tensors)
    hvd.barrier()


def test_memory_that_ranks_share_is_dropped():
    tensor = hvd.empty(COUNT)
    tensor.fill_(1)
    view = tensor[10:]
    strangers = None

    def start():
        nonlocal tensor
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
        tensor = None
        return handle

    def act(handle):
        nonlocal strangers
        del handle
        strangers = [hvd.empty(COUNT).fill_(7) for _ in range(8)]

    in_flight(start, act)
    hvd.barrier()
    assert (view == hvd.size()).all()
    assert all((one == 7).all() for one in strangers)
    hvd.barrier()
