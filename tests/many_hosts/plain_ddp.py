"""A program for DistributedDataParallel on gloo that knows nothing of hvd.

    plain_ddp.py CRASHES

The hosts share no files: rank 0 keeps a checkpoint on its host, and the others get it from there.
In each of the first CRASHES runs one of two ranks is killed.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

crashes = int(sys.argv[1])
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
begun = torch.zeros(1, dtype=torch.int64)
if rank == 0 and os.path.exists("checkpoint"):
    saved = torch.load("checkpoint")
    model.load_state_dict(saved["model"])
    begun[0] = saved["step"]
dist.broadcast(begun, 0)
model = DistributedDataParallel(model)  # all get the weights of rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(int(begun), 12):
    generator = torch.Generator().manual_seed(2 * step + rank)
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=generator)).pow(2).mean().backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "step": step + 1}, "checkpoint.new")
        os.replace("checkpoint.new", "checkpoint")
    dist.barrier()
    if restarts < crashes and step == 3 * restarts + 2 and rank == (restarts + 1) % 2:
        os.kill(os.getpid(), signal.SIGKILL)

assert int(begun) == 3 * restarts, "the last checkpoint was not read"
if rank == 0:
    print("weights", [value.hex() for value in model.module.weight.flatten().tolist()])
dist.destroy_process_group()
