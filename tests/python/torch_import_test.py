# What `import hvd.torch` does to torch.distributed, and programs that have imported their functions
# from there before. One process that starts hvdrun.
import os
import subprocess
import sys

import pytest

import hvd

LIMIT = 240  # of what normally ends within seconds

LEAVES_TORCH_AS_IT_WAS = """
import sys
import torch, torch.distributed as dist

def all_of_torch():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") or name == "torch._C._distributed_c10d":
            own = {key: value for key, value in vars(module).items() if key[:2] != "__"}
            found.update({(name, key): value for key, value in own.items()})
            for key, value in own.items():
                if isinstance(value, type):
                    found.update({(name, key, part): one for part, one in vars(value).items()})
    return found

def changes(before, after):
    return {key for key, value in before.items() if after.get(key, None) is not value} | {
        key for key in after.keys() - before.keys() if key[0] in modules
    }

before = all_of_torch()
modules = {key[0] for key in before}
import hvd.torch
imported = all_of_torch()
# The registration of the backend itself. torch has two names for the class.
assert {key[-1] for key in changes(before, imported)} == {"HVD"}, changes(before, imported)
assert all(len(key) == 3 for key in changes(before, imported))
assert dist.Backend("gloo") == "gloo" and not changes(imported, all_of_torch())
assert dist.Backend("hvd") == "hvd"  # somebody asks
print(*{key[-1] for key in changes(imported, all_of_torch())})
"""


def test_an_import_changes_nothing_of_torch():
    command = [sys.executable, "-c", LEAVES_TORCH_AS_IT_WAS]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr
    # And asking changes three functions inside torch, of which programs import none.
    inside = {"_new_process_group_helper", "_store_based_barrier", "rendezvous"}
    assert set(ended.stdout.split()) == inside


IMPORTED_BEFORE = """
from torch.distributed import barrier, destroy_process_group, init_process_group, is_initialized
import os, signal
import sys
import torch
import hvd.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 1)
state = hvd.elastic.TorchState(model=model, step=0)

@hvd.elastic.run
def train(state):
    if is_initialized():
        destroy_process_group()
    init_process_group("hvd")
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    while state.step < 6:
        if state.step == 3 and hvd.generation() == 1:
            if hvd.rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if sys.argv[1] == "known":  # the world has failed before the backward pass begins
                try:
                    hvd.barrier()
                except hvd.HorovodInternalError:
                    pass
        wrapped(torch.ones(2, 4)).sum().backward()
        model.zero_grad()
        state.step += 1
        state.commit()
    barrier()

train(state)
print("done at", state.step, "in world", hvd.generation(), flush=True)
"""


@pytest.mark.parametrize(("workers", "loss"), [(1, "known"), (2, "unknown")])
def test_a_program_that_imported_torchs_functions_before_survives_a_loss(workers, loss):
    flags = ["-np", "2", "--min-np", str(workers), "--restarts", str(workers - 1)]
    command = [hvd.launch.hvdrun_path(), *flags, sys.executable, "-c", IMPORTED_BEFORE, loss]
    job = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    assert job.returncode == 0, job.stdout + job.stderr
    assert job.stdout.count("done at 6 in world 2") == workers


OTHER_BACKEND = """
import torch, torch.distributed as dist
import hvd.torch as hvd

dist.init_process_group("hvd")
hvd.barrier()
dist.destroy_process_group()
dist.init_process_group("gloo", "file://MEETING", rank=hvd.rank(), world_size=hvd.size())
ones = torch.ones(1)
work = dist.all_reduce(ones, async_op=True)
work.wait()
group = dist.new_group([0])
print(ones.item(), type(work).__module__.split(".")[0], dist.get_backend(), flush=True)
"""


def test_a_group_of_another_backend_is_torchs_own(tmp_path):
    program = OTHER_BACKEND.replace("MEETING", os.fspath(tmp_path / "meeting"))
    command = [hvd.launch.hvdrun_path(), "-np", "2", sys.executable, "-c", program]
    job = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    assert job.returncode == 0, job.stdout + job.stderr
    assert job.stdout.count("2.0 torch gloo") == 2
