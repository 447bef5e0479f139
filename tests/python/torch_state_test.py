# What an elastic state refers to, while the program drops, replaces, moves and resizes it, and what
# belongs to one rank alone. All ranks of a job whose world does not change.
import copy
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch

import hvd.torch as hvd

pytestmark = pytest.mark.usefixtures("world")

SIZE = 300  # rows and columns of a weight: freed memory of this size is taken again at once
LIMIT = 60  # seconds, of what normally happens at once


def make_state(**others):
    layers = [torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    for weight in model.parameters():
        torch.nn.init.ones_(weight)
    return hvd.elastic.TorchState(model=model, step=0, **others)


def in_run(state, function):
    """Calls the function as the one that trains, once."""
    hvd.elastic.run(lambda own: function())(state)


def end_without_tensors(state):
    """Lets the run end, though its tensors are not where they were."""
    state._kept.clear()
    state.model = torch.nn.Module()


class Strangers:
    """Tensors of the program's own, where freed memory was. Nobody else may write there."""

    def __init__(self):
        self.tensors = [torch.full((SIZE, SIZE), 7.0) for _ in range(8)]

    def check(self):
        assert all((tensor == 7).all() for tensor in self.tensors)


def drop_layer(state):
    del state.model[1]


def drop_weight(state):
    state.model[1].weight = None


def drop_model(state):
    state.model = None


def replace_model(state):
    state.model = copy.deepcopy(state.model)


def replace_data(state):
    state.model[1].weight.data = torch.zeros(SIZE, SIZE)


def replace_storage(state):
    with torch.no_grad():
        state.model[1].weight.set_(torch.zeros(SIZE, SIZE))


def change_type(state):
    state.model.double()


def change_shape(state):
    state.model[1].weight.requires_grad_(False).resize_(2, 2)


def scatter(state):
    state.model[1].weight.data = torch.zeros(SIZE, SIZE).t()


def share(state):
    state.model.share_memory()


def add_layer(state):
    state.model.append(torch.nn.Linear(2, 2))


DISTURBANCES = {
    drop_layer: r"model.1.weight is not there any more",
    drop_weight: r"model.1.weight is not there any more",
    drop_model: r"model.0.weight is not there any more",
    replace_model: r"model.0.weight has moved",
    replace_data: r"model.1.weight has moved",
    replace_storage: r"model.1.weight has moved",
    change_type: r"model.0.weight has another shape, type or device",
    change_shape: r"model.1.weight has another shape, type or device",
    scatter: r"model.1.weight is not there any more, or not dense",
    share: r"model.0.weight has moved",
    add_layer: r"model.2.weight is new",
}


@pytest.mark.parametrize("disturb", list(DISTURBANCES), ids=lambda one: one.__name__)
def test_models_of_a_state_that_runs_stay_where_they_are(disturb):
    state = make_state()

    def train():
        state.commit()
        disturb(state)
        strangers = Strangers()
        for call in (state.restore, state.commit, state.sync):
            with pytest.raises(RuntimeError, match=DISTURBANCES[disturb]):
                call()
        strangers.check()
        end_without_tensors(state)

    in_run(state, train)


def test_tensors_of_a_state_that_runs_cannot_be_resized():
    state = make_state()

    def train():
        for weight in state.model.parameters():
            with pytest.raises(RuntimeError, match="not resizable"):
                weight.data.resize_(4 * SIZE, SIZE)

    in_run(state, train)


def test_models_may_change_before_the_run():
    state = make_state()
    state.model.double()
    del state.model[1]
    state.model[0].weight.data = torch.full((SIZE, SIZE), hvd.rank() + 1.0)

    def train():
        assert (state.model[0].weight == 1).all()
        state.model[0].weight.data.zero_()
        state.restore()
        assert (state.model[0].weight == 1).all()

    in_run(state, train)


def when_main_is_in(call, act):
    """A thread that calls ``act()`` when the main thread has gone into a method of this name."""
    main = threading.main_thread().ident

    def look():
        limit = time.monotonic() + LIMIT
        while sys._current_frames()[main].f_code.co_name != call and time.monotonic() < limit:
            time.sleep(0.001)
        act()

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def is_last():
    return hvd.rank() == hvd.size() - 1


def let_last_go():
    hvd.send(torch.zeros(1), hvd.size() - 1)


def wait_for_others():
    for rank in range(hvd.size() - 1):
        hvd.recv(torch.zeros(1), rank)


@pytest.mark.parametrize("call", ["commit", "sync"])
@pytest.mark.parametrize(
    "disturb", [drop_model, drop_layer, replace_data, replace_storage, change_type, scatter]
)
def test_a_state_is_disturbed_in_flight(call, disturb):
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    state = make_state(array=np.ones(SIZE * SIZE))
    strangers = []

    def act():
        try:
            disturb(state)
            state.array = None
            strangers.append(Strangers())
        finally:
            let_last_go()

    def train():
        if is_last():
            wait_for_others()
            getattr(state, call)()
            disturb(state)
        else:
            thread = when_main_is_in(call, act)
            getattr(state, call)()
            thread.join()
            strangers[0].check()
        end_without_tensors(state)

    in_run(state, train)


# --- what belongs to one rank --------------------------------------------------------------------


class Samples:
    """The samples of one rank: a loader that keeps its place."""

    def __init__(self, first, count):
        self.next = first
        self.last = first + count

    def __iter__(self):
        while self.next < self.last:
            self.next += 1
            yield self.next - 1

    def state_dict(self):
        return {"next": self.next, "last": self.last}

    def load_state_dict(self, saved):
        self.next, self.last = saved["next"], saved["last"]


class Average:
    """An average of weights, which begins somewhere on each rank."""

    def __init__(self, first):
        self.weights = torch.full((3,), float(first))

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, saved):
        self.weights.copy_(saved["weights"])


KINDS = [hvd.elastic.ObjectState, hvd.elastic.TorchState]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda rank: Samples(20 * rank, 20),
        random.Random,
        np.random.RandomState,
        np.random.default_rng,
    ],
)
def test_samples_and_random_numbers_of_one_rank_are_no_state(kind, make):
    def train():
        pytest.fail("it has begun to train")

    state = kind(position=make(hvd.rank()))
    if hvd.size() == 1:
        return in_run(state, lambda: None)
    with pytest.raises(
        ValueError, match=r'"position" is not the same on all ranks.*ElasticSampler'
    ):
        in_run(state, train)
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_the_same_on_all_ranks_is_a_state(kind):
    rank = hvd.rank()
    state = kind(
        samples=Samples(3, 20),
        numbers=random.Random(1),
        array=np.random.default_rng(2),
        average=Average(rank),  # what all ranks begin with comes from rank 0
        sampler=hvd.elastic.ElasticSampler(range(40)),
        words=[f"of rank {rank}"],
    )

    def train():
        assert state.average.weights.tolist() == [0, 0, 0] and state.words == ["of rank 0"]
        assert next(iter(state.samples)) == 3
        state.numbers.random()
        state.commit()

    in_run(state, train)
    in_run(state, lambda: None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_of_torch_belongs_to_one_rank(kind):
    data = torch.utils.data.TensorDataset(torch.arange(40))
    sampler = torch.utils.data.DistributedSampler(data, hvd.size(), hvd.rank())
    loader = torch.utils.data.DataLoader(data, sampler=sampler)

    class StatefulDataLoader(torch.utils.data.DataLoader):
        state_dict = load_state_dict = None

    for wrong in (sampler, loader, iter(loader), StatefulDataLoader(data)):
        name = type(wrong).__name__
        with pytest.raises(ValueError, match=f'"it" is a {name}, .*hvd.elastic.ElasticSampler'):
            kind(it=wrong)
    state = kind(later=None)
    state.later = loader
    with pytest.raises(ValueError, match='"later" is a DataLoader'):
        in_run(state, lambda: None)


# --- the last one, since its run has no end ------------------------------------------------------


class Late(Exception):
    pass


def interrupt_a_commit():
    """Leaves it in flight, on all ranks but the last."""
    state = make_state(array=np.ones(SIZE * SIZE))

    def train():
        if is_last():
            wait_for_others()
            state.commit()
            raise Late
        thread = when_main_is_in("commit", lambda: os.kill(os.getpid(), signal.SIGUSR1))
        with pytest.raises(Late):
            state.commit()
        thread.join()
        for call in (state.commit, state.check_host_updates, state.restore, state.sync):
            with pytest.raises(RuntimeError, match="was interrupted by a signal"):
                call()
        raise Late

    def handle(*_):
        raise Late

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(Late):
            in_run(state, train)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_commit_that_a_signal_interrupts_has_the_state_for_good():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    interrupt_a_commit()
    strangers = Strangers()
    if not is_last():
        let_last_go()
    hvd.barrier()
    strangers.check()
