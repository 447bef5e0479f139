"""Trains over shards on whatever workers there are, of which some are lost: torch_shards_test.cpp.

A line of rank 0 after each commit has the step and a digest of all that it trains. `DISTURB` says
in which steps the world is waited for and disturbed.
"""

import hashlib
import os
import signal
import time

import torch

import hvd.torch as hvd

SHARDS = 16
STEPS = 30
# By step: with how many workers it begins, and which rank is lost in the middle of it.
SIZES = {0: 5, 8: 5, 12: 7, 21: 7, 25: 3}
VICTIMS = {5: 3, 18: 0}
is_disturbed = os.environ.get("DISTURB") == "1"

hvd.init()
torch.manual_seed(1)
inputs = torch.randn(2000, 20)
targets = inputs[:, :3].argmax(1)
model = torch.nn.Sequential(
    torch.nn.Linear(20, 32),
    torch.nn.BatchNorm1d(32),
    torch.nn.ReLU(),
    torch.nn.Dropout(0.2),
    torch.nn.Linear(32, 3),
)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.01),
    model.named_parameters(),
    shards=SHARDS,
    deterministic=True,
    named_buffers=model.named_buffers(),
)
sampler = hvd.ShardSampler(inputs, batch_size=8, shards=SHARDS, seed=3)
state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, sampler=sampler, step=0, digest="", lost=[]
)


def wait_for_size(size):
    if hvd.rank() == 0:
        print(f"step {state.step} waits for {size} workers", flush=True)
    while hvd.size() != size:
        state.commit()
        time.sleep(0.05)


def digest_of_all():
    parts = [*model.state_dict().values()]
    for values in optimizer.state_dict()["state"].values():
        parts += [one for one in values.values() if torch.is_tensor(one)]
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in parts)).hexdigest()


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        victim = VICTIMS.get(state.step)
        if is_disturbed and state.step in SIZES:
            wait_for_size(SIZES[state.step])
        if victim is not None and state.step not in state.lost:
            # Committed before the loss, so that it comes once.
            state.lost.append(state.step)
            state.commit()
        else:
            victim = None
        if sampler.is_done():
            sampler.set_epoch(sampler.epoch + 1)
        for number, shard in enumerate(optimizer.shards(state.step)):
            if is_disturbed and hvd.rank() == victim and number == 1:
                print(f"killed in step {state.step}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            torch.manual_seed(hvd.ShardRandom(7, shard, state.step).seed())
            batch = sampler.batch(shard)
            torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
        sampler.record_step()
        state.step += 1
        state.digest = digest_of_all()
        state.commit()
        if hvd.rank() == 0:
            print(f"step {state.step} digest {state.digest}", flush=True)


train(state)
