# Whole jobs: what survives, what can be interrupted, and what is left behind. One process that
# starts hvdrun.
import os
import re
import signal
import subprocess
import sys

import pytest
import torch

import hvd

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
LIMIT = 120  # of what normally ends at once


def nightly(value):
    """A parameter whose test only scripts/nightly runs."""
    return pytest.param(value, marks=pytest.mark.nightly)


def run_job(*arguments, **options):
    command = [hvd.launch.hvdrun_path(), *(str(one) for one in arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, **options
    )


def workers_of(command):
    """Process numbers of the workers of a job that runs."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8") as file:
                words = file.read().rstrip("\0").split("\0")
            with open(f"/proc/{name}/environ", encoding="utf-8") as file:
                is_worker = "HVD_WORKER=" in file.read()
        except OSError:
            continue
        if words == command and is_worker:
            found.append(int(name))
    assert found, "no worker runs"
    return found


def program(name):
    return [sys.executable, os.path.join(HERE, name)]


def lines(job, rank):
    return [
        line.split(":", 1)[1]
        for line in job.stdout.splitlines()
        if line.startswith(f"[{rank}]<stdout>:")
    ]


# --- elastic jobs -------------------------------------------------------------------------------


PROCESS_SETS = """
import os, signal, hvd

early, again = hvd.ProcessSet([1, 3]), hvd.ProcessSet([0, 1])
hvd.init(process_sets=[early])
state = hvd.elastic.ObjectState(step=0)
added = {}
first_rank = None


def check_refused(error, kind, call):
    try:
        call()
    except kind as caught:
        assert isinstance(caught, error), repr(caught)
        return
    raise AssertionError("nothing was raised")


def begin():
    global first_rank
    first_rank = hvd.rank()
    added["pair"] = hvd.add_process_set([2, 3])
    added["shrinks"] = hvd.add_process_set([0, 2], shrink=True)
    added["lost"] = hvd.add_process_set([0, 3])
    hvd.barrier()
    if hvd.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.barrier()


def check(process_set, *members):
    ranks = [rank for rank, first in enumerate(places) if first in members]
    assert process_set.ranks == ranks, (process_set, process_set.ranks, ranks)
    if process_set.included():
        own = hvd.rank()
        assert hvd.allgather_object(own, process_set=process_set) == ranks
        assert hvd.broadcast_object(own, ranks[0], process_set=process_set) == ranks[0]


@hvd.elastic.run
def train(state):
    global places
    hvd.add_process_set(again)
    check_refused(ValueError, ValueError, lambda: hvd.add_process_set(again))
    check_refused(ValueError, ValueError, lambda: hvd.add_process_set(early))
    assert again.ranks == [0, 1] and again.included() == (hvd.rank() < 2)
    if hvd.generation() == 1:
        begin()
    places = hvd.allgather_object(first_rank)
    check(early, 1, 3)
    if first_rank is not None:
        check(added["pair"], 2, 3)
        check(added["shrinks"], 2)
        check_refused(hvd.ProcessSetError, hvd.HorovodInternalError, added["lost"].size)
        assert "id=5" in repr(added["lost"])


train(state)
print("later world" if hvd.generation() > 1 else "first world", flush=True)
"""


@pytest.mark.parametrize("least", [3, 4])
def test_process_sets_consist_of_the_same_workers_in_the_next_world(least):
    flags = ["-np", 4, "--min-np", least, "--restarts", 10 * (least - 3), "--dynamic-process-sets"]
    job = run_job(*flags, sys.executable, "-c", PROCESS_SETS)
    assert job.returncode == 0, job.stdout + job.stderr
    for rank in range(least):
        assert lines(job, rank) == ["later world"], job.stderr


def test_added_process_sets_shrink_if_init_says_so():
    text = """
import os, signal, hvd
hvd.init(process_sets="dynamic", process_sets_shrink=True)
state = hvd.elastic.ObjectState(step=0)
added = []

@hvd.elastic.run
def train(state):
    if hvd.generation() == 1:
        added.append(hvd.add_process_set([0, 1]))
        added.append(hvd.add_process_set([0, 2], shrink=False))
        hvd.barrier()
        if hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.barrier()
    assert added[0].size() == 1
    try:
        added[1].size()
    except hvd.LostMemberError:
        print("lost", flush=True)

train(state)
"""
    job = run_job("-np", 3, "--min-np", 2, "--restarts", 0, sys.executable, "-c", text)
    assert job.returncode == 0, job.stdout + job.stderr
    assert lines(job, 0) == lines(job, 1) == ["lost"]


def results(kind, crashes):
    flags = ["-np", 3, "--min-np", 3, "--restarts", 10]
    job = run_job(*flags, *program("elastic_program.py"), kind, 20, crashes)
    assert job.returncode == 0, job.stdout + job.stderr
    said = {lines(job, rank)[-1] for rank in range(3)}
    assert len(said) == 1, job.stdout
    text = said.pop()
    assert ("later world" in text) == (crashes > 0), job.stderr
    return text.rsplit(" ", 2)[0]


@pytest.mark.parametrize("kind", ["numpy", nightly("torch"), "ddp"])
def test_killed_workers_change_no_bit_of_the_result(kind):
    undisturbed = results(kind, 0)
    assert undisturbed.split()[0] in ("total", "weights")
    assert results(kind, 2) == undisturbed


def test_programs_that_lose_workers_end_with_the_weights_of_one_process(tmp_path):
    names = ["momentum_and_decay", "gan_generator_first", "reentrant_checkpoints_behind_a_layer"]
    flags = ("-np", 2, "--min-np", 2)
    job = run_job(*flags, *program("torch_programs_elastic.py"), tmp_path, *names)
    assert job.returncode == 0, job.stderr
    for rank in range(2):
        assert lines(job, rank)[-1] == "as one process: 3 programs, 3 kills", job.stdout


def test_a_newcomer_has_what_the_callbacks_of_the_others_have_set():
    flags = ["-np", 2, "--min-np", 2, "--restarts", 10]
    job = run_job(*flags, *program("reset_program.py"), 8)
    assert job.returncode == 0, job.stdout + job.stderr
    said = [lines(job, rank)[-1] for rank in range(2)]
    resets = int(re.search(r"resets (\d+)", said[0])[1])
    assert resets >= 1
    assert said == [f"resets {resets}, learning rate {0.125 * (1 + resets)}"] * 2


CALLBACK_OF_RANK_0 = """
import os, signal
import hvd
hvd.init()
state = hvd.elastic.ObjectState(step=0, seen=None)
def note():
    state.seen = hvd.generation()
if hvd.rank() == 0:
    state.register_reset_callbacks([note])
@hvd.elastic.run
def train(state):
    while state.step < 6:
        if hvd.generation() == 1 and state.step == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        state.step += 1
        state.commit()
    assert state.seen == hvd.generation(), state.seen
train(state)
"""


def test_a_callback_of_one_rank_alone_keeps_nobody_waiting():
    flags = ["-np", 2, "--min-np", 2, "--restarts", 10]
    job = run_job(*flags, sys.executable, "-c", CALLBACK_OF_RANK_0)
    assert job.returncode == 0, job.stderr


COMMITS_AT_CHECKS = """
import os, signal
import torch
import hvd.torch as hvd
hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
state = hvd.elastic.TorchState(model=model, step=0)
born_as = hvd.rank(), hvd.generation()
entered = []

@hvd.elastic.run
def train(state):
    # The steps of each world begin where those of the last one ended, with all that they changed.
    state.check_host_updates()
    own = state.step, model.weight.item()
    assert hvd.allgather_object(own) == [(own[0], float(own[0]))] * hvd.size(), own
    entered.append(own[0])
    while hvd.generation() < 3 or state.step < 8:
        with torch.no_grad():
            model.weight += 1
        state.step += 1
        if (state.step, born_as) == (3, (0, 1)):
            os.kill(os.getpid(), signal.SIGTERM)  # leaves at a check
        if hvd.generation() == 2 and state.step == entered[-1] + 2 and born_as == (1, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.barrier()
        if hvd.generation() < 3:
            state.check_host_updates()
        else:
            state.commit()

train(state)
assert born_as != (2, 1) or entered[1] == entered[2] >= 3, entered
print("done", state.step == model.weight.item(), hvd.generation() >= 3, flush=True)
"""


def test_a_check_commits_all_of_the_state_where_the_world_changes():
    flags = ["-np", 3, "--min-np", 1, "-H", "localhost:3"]
    job = run_job(*flags, sys.executable, "-c", COMMITS_AT_CHECKS)
    assert job.returncode == 0, job.stdout + job.stderr
    said = [line.split(":", 1)[1] for line in job.stdout.splitlines()]
    assert said and set(said) == {"done True True"}, job.stdout


OWN_INTERRUPT = """
import hvd
hvd.init()
state = hvd.elastic.ObjectState(step=0)
@hvd.elastic.run
def train(state):
    while state.step < 5:
        if hvd.generation() == 1 and state.step == 2 and hvd.rank() == 1:
            raise hvd.HostsUpdatedInterrupt("of the program")
        state.step += 1
        state.commit()
train(state)
print("done", state.step, hvd.generation(), flush=True)
"""


def run_two(text, end, *arguments, restarts=2, **options):
    """Two workers run the text of a program, and both print this as their last line."""
    flags = ["-np", 2, "--min-np", 2, "--restarts", restarts]
    job = run_job(*flags, sys.executable, "-c", text, *arguments, **options)
    assert job.returncode == 0, job.stdout + job.stderr
    assert [lines(job, rank)[-1] for rank in range(2)] == [end] * 2
    return job


def test_an_interrupt_of_the_program_is_an_error_of_its_own():
    job = run_two(OWN_INTERRUPT, end="done 5 2")
    assert "the program itself has raised HostsUpdatedInterrupt" in job.stderr


NO_THREADS = """
import ctypes, os, signal
import hvd
hvd.init()
state = hvd.elastic.ObjectState(step=0)

def refuse_threads():  # each would need a stack that is larger than the address space
    libc = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(256)
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 47))
    assert libc.pthread_setattr_default_np(attributes) == 0

@hvd.elastic.run
def train(state):
    while state.step < 20:
        state.step += 1
        if hvd.generation() == 1 and state.step == 5 and hvd.rank() == 1:
            refuse_threads()
        if hvd.generation() == 1 and state.step == 6 and hvd.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()
train(state)
print("done", state.step, flush=True)
"""


def test_a_worker_that_gets_no_threads_says_so_and_is_replaced():
    job = run_job("-np", 3, "--min-np", 3, sys.executable, "-c", NO_THREADS)
    assert job.returncode == 0, job.stdout + job.stderr
    assert [lines(job, rank)[-1] for rank in range(3)] == ["done 20"] * 3
    assert "localhost#1 gave up" in job.stderr and "ulimit -u" in job.stderr, job.stderr
    assert "a bug in hvd" not in job.stderr and "BlockingIOError" not in job.stderr, job.stderr


OWN_FAILURE = """
import sys
import hvd
hvd.init()
state = hvd.elastic.ObjectState(step=0)
entries = 0
@hvd.elastic.run
def train(state):
    global entries
    entries += 1
    while state.step < 5:
        state.step += 1
        if state.step == 3 and entries == 1 and str(hvd.rank()) in sys.argv[1]:
            raise hvd.HorovodInternalError("of the\\0 program \\udcff") from ZeroDivisionError()
        state.commit()
train(state)
print("done", state.step, entries, hvd.generation(), flush=True)
"""


@pytest.mark.parametrize("ranks", ["0", "1", "0 1"])
def test_a_failure_of_the_program_takes_all_ranks_back_to_the_last_commit(ranks):
    job = run_two(OWN_FAILURE, "done 5 2 1", ranks, restarts=0)
    assert re.search(r"the program of rank [01] gives up: of the program \\udcff\n", job.stderr)


def test_an_interrupt_that_is_passed_on_is_the_one_of_the_world():
    from hvd.elastic import _was_raised_by_hvd

    real = hvd.HostsUpdatedInterrupt("of the world")
    real.code = hvd.errors.HOSTS_UPDATED
    assert _was_raised_by_hvd(real)
    try:
        try:
            raise real
        except hvd.HostsUpdatedInterrupt:
            raise hvd.HostsUpdatedInterrupt("in other words")  # noqa: B904
    except hvd.HostsUpdatedInterrupt as error:
        assert _was_raised_by_hvd(error)
    assert not _was_raised_by_hvd(hvd.HostsUpdatedInterrupt("of the program"))


OPTIMIZER_OF_A_CALL = """
import os, signal, sys, weakref
import torch
import hvd.torch as hvd
hvd.init()
weight, bias = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(1))
state = hvd.elastic.ObjectState(step=0)
former, kept = [], []

def groups_of(weight, bias):
    return [{"params": [weight]}, {"params": [bias]}]

@hvd.elastic.run
def train(state):
    # Nothing keeps the failed call alive, with its references to the old world.
    assert all(one() is None for one in former)
    # A survivor has made more of these than a newcomer.
    spare = groups_of(torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(1)))
    kept.append(hvd.DistributedOptimizer(torch.optim.SGD(spare, lr=0.1)))
    if state.step < 2:
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
    else:
        groups = groups_of(weight, bias)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))
    former.append(weakref.ref(optimizer))
    while state.step < 6:
        if state.step == 2 and len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": [bias]})
        optimizer.zero_grad()
        ((weight * (1 + hvd.rank())).sum() + bias.sum()).backward()
        if hvd.generation() == 1 and state.step == 4 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        state.step += 1
        state.commit()

train(state)
print("done", state.step, hvd.generation(), flush=True)
"""


def test_an_optimizer_belongs_to_one_call_of_the_function():
    run_two(OPTIMIZER_OF_A_CALL, end="done 6 2")


DEATHS_AROUND_INIT = """
import os, signal
import torch, torch.distributed as dist
import hvd.torch as hvd
from hvd.torch import process_group, registration
hvd.init()
state = hvd.elastic.ObjectState(step=0)
begin = process_group.HvdProcessGroup._begin
groups = 0

def die(rank, generation):
    if (hvd.rank(), hvd.generation()) == (rank, generation):
        os.kill(os.getpid(), signal.SIGKILL)

def begin_or_die(self):
    global groups
    groups += 1
    die(1, 1 + groups)  # in a call of torch, for which the others wait
    begin(self)

process_group.HvdProcessGroup._begin = begin_or_die

@hvd.elastic.run
def train(state):
    global groups
    groups = 0
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("hvd")  # world 2
    die(0, 1)  # and with it the store of the others
    group = dist.new_group()  # world 3
    if hvd.generation() == 4:
        die(1, 4)
        with registration.barrier_afterwards():
            raise RuntimeError("Connection reset by peer")
    while state.step < 5:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == 2
        state.step += 1
        state.commit()

train(state)
print("done", state.step, hvd.generation(), flush=True)
"""


@pytest.mark.nightly
def test_a_rank_is_lost_while_process_groups_are_made():
    # Newer versions of torch let the ranks meet only if they are told to.
    environment = {**os.environ, "TORCH_DIST_INIT_BARRIER": "1"}
    run_two(DEATHS_AROUND_INIT, end="done 5 5", restarts=10, env=environment)


def test_an_attribute_that_gets_a_state_dict_later_travels_whole():
    class Counter:
        def __init__(self):
            self.count = 0

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    first = Counter()
    state = hvd.elastic.ObjectState(counter=first, later=None)
    first.count = 3
    state.later = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    state.save()
    first.count, state.later = 7, None
    state.restore()
    assert state.counter is first and first.count == 3
    assert isinstance(state.later, hvd.elastic.ElasticSampler)


@pytest.mark.skipif(TORCH < (2, 15), reason="torch has reconfigure from 2.15 on")
@pytest.mark.parametrize("crashes", [0, 1, 3])
def test_a_group_goes_on_in_worlds_of_other_sizes(crashes):
    flags = ["-np", 2, "--min-np", 1, "--restarts", 10]
    job = run_job(*flags, *program("elastic_program.py"), "reconfigure", 20, crashes)
    assert job.returncode == 0, job.stdout + job.stderr
    # The program compares the weights with those of one process on all samples.
    sizes = [lines(job, rank)[-1].split("sizes ")[1].split() for rank in range(2)]
    assert sizes[0] == sizes[1]
    changes = [size for at, size in enumerate(sizes[0]) if at == 0 or sizes[0][at - 1] != size]
    assert changes == ["2"] + ["1", "2"] * ((crashes + 1) // 2)


@pytest.mark.skipif(TORCH < (2, 15), reason="torch has reconfigure from 2.15 on")
def test_reconfigure_without_a_world_says_what_is_missing():
    text = """
import os, hvd.torch as hvd, torch.distributed as dist
dist.init_process_group("hvd", enable_reconfigure=True)
handles = hvd.allgather_object(dist._get_reconfigure_handle())
dist._reconfigure(1, handles).wait()
if hvd.rank() == 1:
    os._exit(9)
try:
    dist._reconfigure(2, handles)
except hvd.HorovodInternalError as error:
    print("lost", error.rank, error.host, bool(error.cause), flush=True)
"""
    # Elastic, so that hvdrun does not end rank 0 with the job.
    job = run_job("-np", 2, "--min-np", 1, "--restarts", 0, sys.executable, "-c", text)
    assert lines(job, 0) == ["lost 1 localhost True"], job.stderr
    text = """
import hvd.torch as hvd, torch.distributed as dist
dist.init_process_group("hvd", enable_reconfigure=True)
hvd.shutdown()
try:
    dist._get_reconfigure_handle()
except hvd.HvdError as error:
    print(type(error).__name__)
"""
    alone = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT
    )
    assert alone.stdout == "NotInitializedError\n", alone.stderr


RANKS_BY_HAND = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp, hvd.torch

def train(rank, arguments):
    if not arguments:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    try:
        dist.init_process_group("hvd", **arguments)
    except (ValueError, hvd.errors.InitError) as error:
        print(rank, error, flush=True)
    else:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        print(rank, "alone", tensor.item(), flush=True)

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        mp.spawn(train, ({},), 2)
    else:
        arguments = {"rank": 1, "world_size": 3} if sys.argv[1] == "arguments" else {}
        train(1, arguments)
"""


@pytest.mark.parametrize("kind", ["environment", "arguments", nightly("spawn"), "alone"])
def test_ranks_that_hvd_has_not_given_out_are_not_worlds_of_one(kind, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(RANKS_BY_HAND, encoding="utf-8")
    allowed = {"HVD_ALLOW_SINGLE": "1"} if kind == "alone" else {}
    command = [sys.executable, str(program), kind]
    job = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | allowed
    )
    ranks, size = ["0", "1"] if kind == "spawn" else ["1"], 3 if kind == "arguments" else 2
    told = "init_process_group() was told of rank {} of 3, but this is rank 0 of 1 for hvd"
    if kind != "arguments":
        told = "rank {} of 2 processes that another launcher has started"
    said = sorted(job.stdout.splitlines())
    assert [line.split()[0] for line in said] == ranks, job.stdout + job.stderr
    for rank, line in zip(ranks, said):
        if kind == "alone":
            assert line == "1 alone 1.0"
        else:
            assert told.format(rank) in line
            assert f"hvdrun -np {size} {sys.executable} {program} {kind} ;" in line


@pytest.mark.parametrize("kind", ["numpy", "torch", nightly("ddp")])
def test_a_suspended_job_goes_on_to_the_same_result(kind, tmp_path):
    flags = ["-np", 2, "--min-np", 1, "--state-file", tmp_path / "state"]
    command = [*flags, *program("elastic_program.py"), kind, 20, 0]
    first = run_job(*command, env={**os.environ, "TEST_SUSPENDS_AT": "5"})
    assert first.returncode == 75, first.stdout + first.stderr
    assert first.stdout == ""
    assert (tmp_path / "state").exists()

    second = run_job(*command)
    assert second.returncode == 0, second.stdout + second.stderr
    assert not (tmp_path / "state").exists(), "it would mislead the next job"
    undisturbed = run_job(*command)
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert lines(second, 0)[-1] == lines(undisturbed, 0)[-1]


@pytest.mark.nightly
def test_a_program_without_hvd_goes_on_from_its_checkpoint(tmp_path):
    weights = []
    for crashes in (0, 2):
        directory = tmp_path / str(crashes)
        directory.mkdir()
        command = program("plain_program.py")
        job = run_job("-np", 2, "--max-restarts", crashes, *command, directory, crashes)
        assert job.returncode == 0, job.stdout + job.stderr
        assert job.stderr.count("all workers are started again") == crashes
        weights.append(lines(job, 0)[-1])
    assert weights[0].startswith("weights")
    assert weights[0] == weights[1]


def test_a_state_that_nobody_shares_works_alone():
    state = hvd.elastic.ObjectState(number=1, items=[1, 2])
    state.save()
    state.number = 5
    state.items.append(3)
    state.restore()
    assert state.number == 1 and state.items == [1, 2]
    state.number = 7
    state.commit()
    state.number = 8
    state.restore()
    assert state.number == 7
    with pytest.raises(RuntimeError, match="nothing to restore"):
        hvd.elastic.ObjectState(number=1).restore()
    with pytest.raises(ValueError, match="commit"):
        hvd.elastic.ObjectState(commit=1)


ROOT = os.path.dirname(os.path.dirname(HERE))
TEXT = os.path.join(ROOT, "docs", "python.md")


def example(name):
    path = os.path.join(ROOT, "examples", "python", name)
    if not os.path.exists(path):
        pytest.skip("the examples are not beside the tests")
    return [sys.executable, path]


@pytest.mark.nightly
def test_the_example_learns_from_a_text():
    flags = ["-np", 2, "--min-np", 1]
    job = run_job(*flags, *example("char_model.py"), "--steps", 60, TEXT)
    assert job.returncode == 0, job.stderr
    bits = re.search(r"step 60: ([0-9.]+) bits for each character", job.stdout)
    assert bits and float(bits[1]) < 5.2, job.stdout


def test_the_example_learns_from_images_though_a_worker_is_killed():
    command = [*example("fashion.py"), "--images", "2000", "--epochs", "2"]
    flags = ["-np", "2", "--min-np", "2", "--restarts", "3"]
    job = subprocess.Popen(
        [hvd.launch.hvdrun_path(), *flags, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "epoch 1: " in job.stdout.readline()
        os.kill(workers_of(command)[-1], signal.SIGKILL)
        output, errors = job.communicate(timeout=LIMIT)
    finally:
        job.kill()
    assert job.returncode == 0, errors
    assert "generation 2: 2 workers" in errors
    share = re.search(r"epoch 2: ([0-9.]+) % are recognized", output)
    assert share and float(share[1]) > 60, output


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_example_trains_a_transformer(kind):
    if kind == "fsdp" and TORCH < (2, 15):
        pytest.skip("FSDP needs a backend, in Python from torch 2.15 on")
    words = "--parallel", kind, "--steps", 12
    job = run_job("-np", 2, *example("transformer.py"), *words, TEXT)
    assert job.returncode == 0, job.stderr
    bits = re.search(r"step 12: ([0-9.]+) bits for each character", job.stdout)
    assert bits and float(bits[1]) < 5.5, job.stdout


# --- interrupts and ends ------------------------------------------------------------------------


CALLS_THAT_WAIT = (
    *"init allreduce optimizer commit".split(),
    *map(
        nightly,
        "torch_allreduce barrier join broadcast_object allgather_object add_process_set run shards "
        "init_process_group all_reduce reconfigure reconfigure_in_time".split(),
    ),
)


@pytest.mark.parametrize("call", CALLS_THAT_WAIT)
def test_control_c_ends_every_call_that_waits(call):
    if "reconfigure" in call and TORCH < (2, 15):
        pytest.skip("torch has reconfigure from 2.15 on")
    job = run_job("-np", 2, *program("interrupt_program.py"), call)
    assert re.search(r"interrupted after \d+ ms", job.stdout), job.stdout + job.stderr
    assert "came back" not in job.stdout and job.returncode != 0
    assert "abort" not in job.stderr.lower() and "SIGABRT" not in job.stderr


ENDS = {
    "work in flight": """
for index in range(100):
    handle = hvd.allreduce_async(np.ones(10000), name=str(index))
""",
    "callbacks": """
for index in range(100):
    hvd.allreduce_async(np.ones(10), name=str(index)).add_done_callback(lambda done: None)
hvd.barrier()
""",
    "a callback that raises": """
hvd.allreduce_async(np.ones(10)).add_done_callback(lambda done: 1 / 0)
hvd.barrier()
""",
    "callbacks that raise what is no Exception": """
import sys, threading
last = threading.Event()
def interrupt(done):
    raise KeyboardInterrupt
for callback in (lambda done: sys.exit(3), interrupt, lambda done: last.set()):
    hvd.allreduce_async(np.ones(10)).add_done_callback(callback)
assert last.wait(30)
""",
    "a callback in the middle of torch": """
import torch
large = torch.ones(1500, 1500)
hvd.allreduce_async(np.ones(10)).add_done_callback(lambda done: large @ large)
hvd.barrier()
""",
    "futures that nobody waits for": """
import torch, torch.distributed, hvd.torch
torch.distributed.init_process_group("hvd")
for _ in range(20):
    work = torch.distributed.all_reduce(torch.ones(4), async_op=True)
    work.get_future()
    work.wait()
""",
    "callbacks that wait for others": """
import torch, torch.distributed, hvd.torch
torch.distributed.init_process_group("hvd")
def reduced():
    return torch.distributed.all_reduce(torch.ones(4), async_op=True).get_future()
for _ in range(20):
    reduced().then(lambda done: reduced().wait())
""",
    "forked children": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, range(-4, 0)) == [4, 3, 2, 1]
hvd.barrier()
""",
    "a forked child that ends in order": """
import os, sys
hvd.allreduce_async(np.ones(10)).add_done_callback(lambda done: None)
hvd.barrier()
child = os.fork()
if child == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
hvd.barrier()
""",
    "a thread that goes on": """
import threading
def work():
    while True:
        hvd.allreduce(np.ones(3), name="on and on")
threading.Thread(target=work, daemon=True).start()
hvd.barrier()
""",
}


@pytest.mark.parametrize("what", [nightly(end) if "torch" in ENDS[end] else end for end in ENDS])
@pytest.mark.parametrize("shutdown", [False, nightly(True)])
def test_the_interpreter_ends_in_order_with(what, shutdown):
    text = "import numpy as np, hvd\nhvd.init()\n" + ENDS[what]
    if shutdown:
        text += "hvd.shutdown()\n"
    for _ in range(int(os.environ.get("HVD_TEST_REPEATS", "1"))):
        job = run_job("-np", 2, sys.executable, "-c", text)
        assert job.returncode == 0, job.stdout + job.stderr


def test_a_failure_that_a_program_has_handled_does_not_fail_the_job():
    text = """
import numpy as np, hvd
hvd.init()
try:
    if hvd.rank() == 0:
        hvd.allreduce(np.ones(3))
    else:
        hvd.allgather(np.ones(3), name="never")
except hvd.HorovodInternalError:
    print("stalled", flush=True)
finally:
    hvd.shutdown()
"""
    limits = ["--stall-check-warning-time-seconds", 1, "--stall-check-shutdown-time-seconds", 2]
    job = run_job("-np", 2, *limits, sys.executable, "-c", text)
    assert job.returncode == 0, job.stdout + job.stderr
    assert lines(job, 0)[-1:] == lines(job, 1)[-1:] == ["stalled"]


def test_an_exception_ends_the_job():
    text = "import hvd; hvd.init(); 1 / (1 - hvd.rank()); hvd.barrier()"
    job = run_job("-np", 2, sys.executable, "-c", text)
    assert job.returncode == 1 and "ZeroDivisionError" in job.stderr


def test_the_loss_of_a_rank_is_an_exception_that_names_it():
    text = """
import os, numpy as np, hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    os._exit(9)
try:
    while True:
        hvd.allreduce(np.ones(3))
except hvd.HorovodInternalError as error:
    print("lost", error.rank, error.host, bool(error.cause), error.code, flush=True)
    raise
"""
    job = run_job("-np", 2, sys.executable, "-c", text)
    assert job.returncode == 9
    # hvdrun ends the job, too: the survivor may not have had the time to say so.
    said = lines(job, 0)
    assert said in ([], ["lost 1 localhost True -9"])


def test_hvdrun_is_the_one_of_the_package():
    job = run_job("--version")
    assert job.returncode == 0 and hvd.__version__ in job.stdout
    # The handler of Python, or the inherited one: hvd does not change it.
    assert signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)
