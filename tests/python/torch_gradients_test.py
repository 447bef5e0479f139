# When the gradients of a DistributedOptimizer are reduced, and who owns their memory until then.
# Training programs as a whole are in torch_programs.py.
import contextlib
import copy
import gc
import io
import os
import signal
import tempfile
import threading
import time

import pytest
import torch
from torch_programs import Fails

import hvd.torch as hvd
from hvd import _core
from hvd._work import HOST, TYPES

pytestmark = pytest.mark.usefixtures("world")
LARGE = 2_000_000
FLOAT = TYPES["float32"]
WAIT = 60  # seconds, for what comes at once


class Late:
    """An event that one rank makes, and others wait for without hvd."""

    def __init__(self):
        folder = tempfile.mkdtemp() if hvd.rank() == 0 else None
        self._folder = hvd.broadcast_object(folder)

    def _path(self, event):
        return os.path.join(self._folder, event)

    def tell(self, event):
        with open(self._path(event), "w", encoding="utf-8"):
            pass

    def wait(self, event):
        limit = time.monotonic() + WAIT
        while not os.path.exists(self._path(event)):
            assert time.monotonic() < limit, f"{event} has not come"
            time.sleep(0.01)

    def end(self):
        hvd.barrier()
        if hvd.rank() == 0:
            for name in os.listdir(self._folder):
                os.unlink(self._path(name))
            os.rmdir(self._folder)


@pytest.fixture
def late():
    if hvd.size() == 1:
        pytest.skip("needs a rank that others wait for")
    made = Late()
    yield made
    made.end()


class Large(torch.nn.Module):
    """The gradient of its last layer comes first, and is in flight when the pass fails."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(1, 1, bias=False)
        self.last = torch.nn.Parameter(torch.zeros(LARGE))
        torch.nn.init.ones_(self.first.weight)

    def forward(self, inputs, fails=False):
        hidden = Fails.apply(self.first(inputs), fails)
        return (hidden * (1 + self.last)).mean()


def sgd(model, prefix="", **arguments):
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    return hvd.DistributedOptimizer(inner, model.named_parameters(prefix), **arguments)


def one_step(model, optimizer):
    optimizer.zero_grad(set_to_none=True)
    (model(torch.ones(1, 1)) * (hvd.rank() + 1)).backward()
    optimizer.step()


def expect_equal(model):
    for values in hvd.allgather_object([one.detach().clone() for one in model.parameters()]):
        for own, other in zip(model.parameters(), values):
            assert torch.equal(own.detach(), other)


def none_of_the_gradients(model):
    for parameter in model.parameters():
        parameter.grad = None


def other_memory(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.data = torch.zeros(1)


DROPS = {
    "zero_grad": lambda model: model.zero_grad(set_to_none=True),
    "no gradients": none_of_the_gradients,
    "other memory": other_memory,
    "another type": lambda model: (none_of_the_gradients(model), model.double()),
}


@pytest.mark.parametrize("drop", DROPS)
def test_memory_in_flight_is_kept_when_a_pass_fails(drop, late):
    model = Large()
    optimizer = sgd(model)
    one_step(model, optimizer)  # from the second step on gradients travel during the pass
    optimizer.zero_grad(set_to_none=True)
    if hvd.rank() != 0:
        late.wait("rank 0 has other tensors")
    with pytest.raises(MemoryError):
        model(torch.ones(1, 1), fails=True).backward()
    DROPS[drop](model)
    if hvd.rank() == 0:
        others = [torch.full((LARGE,), 7.0) for _ in range(3)]
        late.tell("rank 0 has other tensors")
    optimizer.zero_grad(set_to_none=True)  # ends what the pass has begun, and throws it away
    if hvd.rank() == 0:
        assert all(bool((one == 7).all()) for one in others)
    model.float()
    one_step(model, optimizer)
    expect_equal(model)


def test_memory_in_flight_is_kept_when_the_optimizer_is_dropped(late):
    model = Large()
    optimizer = sgd(model)
    one_step(model, optimizer)
    if hvd.rank() != 0:
        late.wait("rank 0 has other tensors")
    with pytest.raises(MemoryError) as error:
        model(torch.ones(1, 1), fails=True).backward()
    del error, optimizer, model
    gc.collect()
    if hvd.rank() == 0:
        others = [torch.full((LARGE,), 7.0) for _ in range(3)]
        late.tell("rank 0 has other tensors")
    hvd.barrier()
    # All that is in flight is done, and let go.
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 0:
        assert all(bool((one == 7).all()) for one in others)
    model = Large()
    one_step(model, sgd(model))
    expect_equal(model)


@contextlib.contextmanager
def interrupted_when(condition):
    """Sends Ctrl-C to the main thread once the condition holds."""
    ended = threading.Event()

    def watch():
        while not condition():
            if ended.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        signal.signal(signal.SIGINT, before)


def test_a_pass_that_waits_can_be_interrupted_and_the_step_goes_on(late):
    model = Large()
    optimizer = sgd(model)
    one_step(model, optimizer)
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.ones(1, 1)) * (hvd.rank() + 1)
    if hvd.rank() == 0:
        exchange = optimizer._exchange
        with (
            pytest.raises(KeyboardInterrupt),
            interrupted_when(lambda: exchange._step.round.told),
        ):
            loss.backward()
        late.tell("rank 0 was interrupted")
    else:
        late.wait("rank 0 was interrupted")
        loss.backward()
    optimizer.step()  # waits for the rest
    expect_equal(model)
    one_step(model, optimizer)
    expect_equal(model)


def test_a_pass_after_one_that_failed_waits_for_it(late):
    model = Large()
    optimizer = sgd(model)
    one_step(model, optimizer)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        with pytest.raises(MemoryError):
            model(torch.ones(1, 1), fails=True).backward()
        model.zero_grad(set_to_none=True)
        (model(torch.ones(1, 1)) * (hvd.rank() + 1)).backward()
        mean = (hvd.size() + 1) / 2
        expected = model.first.weight.item() * mean / LARGE
        torch.testing.assert_close(model.last.grad, torch.full((LARGE,), expected))
        optimizer.step()
        expect_equal(model)


def test_the_reducer_keeps_what_it_is_given():
    reducer = _core.Reducer("kept", hvd.Sum, 0, 1.0, 0, 1, False, 0, [], 0)
    reducer.add("w", (0, (LARGE,), FLOAT, HOST), False)
    for _ in range(2):
        tensor = torch.full((LARGE,), float(hvd.rank() + 1))
        kept = tensor.detach()
        reducer.ready(0, (tensor.data_ptr(), tensor.shape, FLOAT, HOST), kept, -1)
        before = len(gc.get_referrers(kept))
        with pytest.raises(ValueError, match=r"2\. time"):
            reducer.ready(0, (tensor.data_ptr(), tensor.shape, FLOAT, HOST), None, -1)
        assert len(gc.get_referrers(kept)) == before
        while not reducer.synchronize(20):
            pass
        assert tensor[-1].item() == sum(range(1, hvd.size() + 1))
        assert not reducer.in_flight() and reducer.present(0)
        reducer.next_step()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_sum_is_added_to_the_one_before(set_to_none):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    total = sum(range(1, hvd.size() + 1))
    for _ in range(2):
        for passes in range(1, 4):
            (parameter.sum() * (hvd.rank() + 1)).backward()
            assert parameter.grad.tolist() == [float(passes * total)] * 3
        optimizer.step()
        # One that only rank 0 makes counts once.
        if hvd.rank() == 0:
            parameter.sum().backward()
        optimizer.step()
        assert parameter.grad.tolist() == [3.0 * total + 1] * 3
        optimizer.zero_grad(set_to_none=set_to_none)


def test_a_sum_that_was_replaced_counts_once():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        parameter.sum().backward()
        parameter.grad = parameter.grad * 1
        parameter.sum().backward()
        assert parameter.grad.item() == 2 * hvd.size()
        parameter.grad = parameter.grad * 1
        torch.autograd.grad(parameter.sum(), parameter)
        optimizer.step()
        assert parameter.grad.item() == 2 * hvd.size()


def test_what_one_rank_looks_at_needs_no_other():
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 2)) * (hvd.rank() + 1)).sum()
        loss.backward(retain_graph=True)
        if step == 2 and hvd.rank() == 0:
            torch.autograd.grad(loss, list(model.parameters()))
        optimizer.step()
    expect_equal(model)


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_rank_may_use_one_of_two_optimizers(skipped):
    models = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)]
    for model in models:
        hvd.broadcast_parameters(model.state_dict(), 0)
    optimizers = [sgd(model, str(number)) for number, model in enumerate(models)]
    for step in range(3):
        for one in optimizers:
            one.zero_grad()
        loss = models[1](torch.ones(1, 2)).sum()
        if step != skipped or hvd.rank() == 0:
            loss = loss + models[0](torch.ones(1, 2)).sum()
        loss.backward()
        for one in optimizers:
            one.step()
    for model in models:
        expect_equal(model)


def test_a_rank_without_a_batch_after_a_step_that_was_left_out():
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = sgd(model)
    for step in range(4):
        model.zero_grad(set_to_none=True)
        if step != 2 or hvd.rank() == 0:
            model(torch.ones(3, 2) * (hvd.rank() + 1 + step)).mean().backward()
        if step != 1:
            optimizer.step()
            expect_equal(model)


def test_a_layer_that_was_frozen_is_reduced_in_its_first_pass():
    weight = torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    assert not weight.requires_grad
    weight.requires_grad_(True)
    (weight.sum() * (hvd.rank() + 1)).backward()
    assert weight.grad.tolist() == [(hvd.size() + 1) / 2] * 2
    optimizer.step()


def test_a_step_between_the_passes_of_another_reduces_what_is_there():
    parameter = torch.nn.Parameter(torch.zeros(1))
    inner = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(inner, backward_passes_per_step=3)
    for _ in range(2):
        optimizer.zero_grad()
        (parameter * (hvd.rank() + 1)).sum().backward()
        assert parameter.grad.item() == hvd.rank() + 1
        optimizer.step()
        assert parameter.grad.item() == (hvd.size() + 1) / 2
    with pytest.raises(ValueError, match="between two steps"):
        parameter.sum().backward()
        optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})


def test_a_closure_gives_the_mean_loss():
    model = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(model.weight), torch.nn.init.zeros_(model.bias)
    optimizer = sgd(model)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 1)).sum() + hvd.rank()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx((hvd.size() - 1) / 2)
    for given, expected in ((float(hvd.rank()), (hvd.size() - 1) / 2), (None, None), (3, 3)):
        assert optimizer.step(lambda: given) == expected


def test_ranks_that_disagree_are_told_the_parameter():
    if hvd.size() == 1:
        pytest.skip("needs two ranks")
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("my.weight", weight)])
    weight.sum().backward()
    if hvd.rank() == 0:
        weight.data = weight.data.double()
    optimizer.zero_grad(set_to_none=True)
    with pytest.raises(hvd.HorovodInternalError, match=r"my\.weight"):
        weight.sum().backward()
    weight.data = weight.data.float()
    optimizer.zero_grad(set_to_none=True)
    weight.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]


def test_an_optimizer_can_be_saved_and_copied():
    for arguments in ({}, {"op": hvd.Adasum}):
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(inner, **arguments)
        if arguments == {}:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        file = io.BytesIO()
        torch.save(optimizer, file)
        file.seek(0)
        with_weights = {"weights_only": False} if "weights_only" in str(torch.load.__doc__) else {}
        for other in (torch.load(file, **with_weights), copy.deepcopy(optimizer)):
            assert type(other) is torch.optim.SGD
            assert other.param_groups[0]["lr"] == 0.5
            hvd.DistributedOptimizer(other)
            other.step()


def test_hooks_go_with_the_optimizer():
    weight = torch.nn.Parameter(torch.ones(3))
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
        weight.sum().backward()
        optimizer.zero_grad()
    assert len(weight._backward_hooks) == 1
    del optimizer
    gc.collect()
    assert not weight._backward_hooks
    (weight.sum() * (hvd.rank() + 1)).backward()
    assert weight.grad[0].item() == hvd.rank() + 1  # nobody reduces it any more
