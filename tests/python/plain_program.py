"""A program for DistributedDataParallel on gloo, with checkpoints, that knows nothing of hvd.

    plain_program.py DIRECTORY CRASHES

One of two ranks is killed in each of the first CRASHES runs. Rank 0 prints the weights.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

directory, crashes = sys.argv[1], int(sys.argv[2])
checkpoint = os.path.join(directory, "checkpoint")
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
begun = 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = saved["step"]

for step in range(begun, 12):
    generator = torch.Generator().manual_seed(2 * step + dist.get_rank())
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=generator)).pow(2).mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(saved, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
    dist.barrier()
    if restarts < crashes and step == 3 * restarts + 2 and dist.get_rank() == restarts % 2:
        os.kill(os.getpid(), signal.SIGKILL)

assert begun == 3 * restarts, "the last checkpoint was not read"
if dist.get_rank() == 0:
    print("weights", [value.hex() for value in model.module.weight.flatten().tolist()])
dist.destroy_process_group()
