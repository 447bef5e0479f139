# An elastic job for elastic_test.cpp: trains a model and says what has come of it.
#
#   elastic_program.py numpy|torch|ddp|reconfigure STEPS [CRASHES]
#
# In the first generations, CRASHES of them, the last rank kills itself in the middle of a step
# ("reconfigure": the first rank, where it is not alone). The result does not depend on that: every
# rank's batch depends on the sampler alone, whose samples are shared out among however many ranks
# there are, and sums of whole numbers are exact.
import os
import signal
import sys
import time

import numpy as np


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(") ", 1)[1].split()[1])


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read().strip()


def maybe_suspend(hvd, step):
    """TEST_SUSPENDS_AT=N: rank 0 tells hvdrun in step N to suspend the job."""
    wanted = os.environ.get("TEST_SUSPENDS_AT")
    if wanted is None:
        return
    time.sleep(0.05)  # the commit at which it happens comes before the last step
    if hvd.rank() == 0 and step == int(wanted):
        pid = os.getpid()
        while name_of(pid) != "hvdrun":
            pid = parent_of(pid)
        os.kill(pid, signal.SIGTERM)


def maybe_crash(hvd, step, crashes):
    maybe_suspend(hvd, step)
    generation = hvd.generation()
    if generation <= crashes and step == 3 * generation and hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def train_numpy(steps, crashes):
    import hvd

    hvd.init()
    numbers = np.random.default_rng(3)  # those of all ranks
    state = hvd.elastic.ObjectState(
        total=np.zeros(1000, np.int64), step=0, history=[], numbers=numbers, drawn=[]
    )
    resets = []
    state.register_reset_callbacks([lambda: resets.append(hvd.generation())])
    ones = hvd.empty(100_000, np.int64)  # the other ranks read it where it lies

    @hvd.elastic.run
    def train(state):
        while state.step < steps:
            ones[:] = state.step + 1
            handle = hvd.allreduce_async_(ones, op=hvd.Max, name="step")
            maybe_crash(hvd, state.step, crashes)
            hvd.synchronize(handle)
            assert (ones == state.step + 1).all()
            state.total += ones[:1000]
            state.history.append(state.step)
            state.drawn.append(int(state.numbers.integers(1000)))
            state.step += 1
            state.commit()
        return state.step

    assert train(state) == steps
    assert state.history == list(range(steps)), state.history
    assert state.drawn == np.random.default_rng(3).integers(1000, size=steps).tolist()
    if hvd.generation() > 1 and resets:
        assert resets[-1] == hvd.generation()
    print("total", state.total.sum(), "later world" if hvd.generation() > 1 else "first world")


def train_torch(steps, crashes):
    import torch

    import hvd.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())  # what they begin with comes from rank 0
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(4 * steps), shuffle=True)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < steps:
            optimizer.zero_grad()
            inputs = torch.full((4, 3), float(state.step), dtype=torch.float64)
            inputs += torch.arange(12, dtype=torch.float64).reshape(4, 3)
            (state.model(inputs) ** 2).sum().backward()
            maybe_crash(hvd, state.step, crashes)
            state.optimizer.step()
            state.step += 1
            state.sampler.record_batch(0, 1)
            state.commit()

    train(state)
    assert state.sampler.processed_num >= steps
    weights = torch.cat([one.reshape(-1) for one in model.state_dict().values()])
    everywhere = hvd.allgather_object((weights.tolist(), str(optimizer.state_dict()["state"])))
    assert all(one == everywhere[0] for one in everywhere)
    # The first rank's beginning is random: every one of these is by the seed of rank 0.
    digest = " ".join(f"{one:.17g}" for one in weights.tolist())
    print("weights", digest, "later world" if hvd.generation() > 1 else "first world")


def train_ddp(steps, crashes):
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    layers = [torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @hvd.elastic.run
    def train(state):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("hvd")
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        while state.step < steps:
            optimizer.zero_grad()
            inputs = torch.full((4, 3), float(state.step), dtype=torch.float64)
            maybe_crash(hvd, state.step, crashes)
            (parallel(inputs) ** 2).mean().backward()
            optimizer.step()
            state.step += 1
            state.commit()

    train(state)
    weights = torch.cat([one.reshape(-1) for one in model.parameters()]).tolist()
    everywhere = hvd.allgather_object(weights)
    assert all(one == everywhere[0] for one in everywhere)
    digest = " ".join(f"{one:.17g}" for one in weights)
    print("weights", digest, "later world" if hvd.generation() > 1 else "first world")


def train_reconfigure(steps, crashes):
    """Keeps a process group and a wrapper in worlds of two workers, of one, and of two again."""
    import torch
    import torch.distributed as dist

    import hvd.torch as hvd

    def make_model():
        layers = [torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)]
        return torch.nn.Sequential(*layers).double()

    def loss_of(network, step, rank):
        inputs = torch.full((4, 3), step % 7 + rank, dtype=torch.float64)
        return (network(inputs) ** 2).mean()

    dist.init_process_group("hvd", enable_reconfigure=True)
    group = dist.group.WORLD
    torch.manual_seed(hvd.rank())  # what they begin with comes from rank 0
    model = make_model()
    # Several buckets, so that an allreduce is also begun when another one has failed.
    parallel = torch.nn.parallel.DistributedDataParallel(
        model, init_sync=False, find_unused_parameters=True, bucket_cap_mb=0.00001
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, sizes=[])
    worlds = []
    steps_here = 0
    inner = None

    def maybe_crash_in_backward(_):
        if hvd.generation() <= crashes and steps_here == 3 and hvd.size() > 1 and hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    model[2].weight.register_hook(maybe_crash_in_backward)

    def is_done():
        last_world = hvd.size() == 2 and hvd.generation() > crashes
        return state.step >= steps and steps_here >= 3 and last_world

    def check_is_refused(group, remedy):
        try:
            dist.all_reduce(torch.ones(1), group=group)
        except RuntimeError as error:
            assert f"belongs to world {worlds[-1]}" in str(error), error
            assert str(error).endswith(f"this is world {hvd.generation()}: {remedy}"), error
        else:
            raise AssertionError("the group works in a world that it does not belong to")

    def backward():
        try:
            loss_of(parallel, state.step, dist.get_rank()).backward()
        except Exception as error:
            assert isinstance(error, hvd.HorovodInternalError) and error.cause, repr(error)
            raise

    @hvd.elastic.run
    def train(state):
        nonlocal steps_here, inner
        if worlds:
            check_is_refused(group, "reconfigure() it")
        handles = hvd.allgather_object(dist._get_reconfigure_handle())
        dist._reconfigure(hvd.generation(), handles).wait()
        if worlds:
            check_is_refused(inner, "make it again")
        inner = dist.new_group()
        assert dist.group.WORLD is group and parallel.process_group is group
        assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
        assert dist.get_process_group_ranks(group) == list(range(hvd.size()))
        worlds.append(hvd.generation())
        steps_here = 0
        while not is_done():
            optimizer.zero_grad()
            backward()
            optimizer.step()
            state.step += 1
            steps_here += 1
            state.sizes.append(hvd.size())
            state.commit()
            time.sleep(0.02)

    train(state)
    # One process on all samples, of as many ranks as the worlds had.
    torch.manual_seed(0)
    alone = make_model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step, size in enumerate(state.sizes):
        optimizer.zero_grad()
        (sum(loss_of(alone, step, rank) for rank in range(size)) / size).backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12), (ours, theirs)
    print("worlds", *worlds, "sizes", *state.sizes)


if __name__ == "__main__":
    train = {
        "numpy": train_numpy,
        "torch": train_torch,
        "ddp": train_ddp,
        "reconfigure": train_reconfigure,
    }[sys.argv[1]]
    train(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
