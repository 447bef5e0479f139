# Data loaders that fetch ahead, in a job that loses a worker in the middle of an epoch: each sample
# is drawn once. One process that starts hvdrun.
import json

import pytest
from whole_jobs import assert_drawn_once, output_of

PROGRAM = """
import json, os, signal, sys
import torch
import hvd.torch as hvd

if sys.argv[1] == "stateful":
    from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader
else:
    from torch.utils.data import DataLoader
hvd.init()
data = torch.arange(40)
sampler = hvd.elastic.ElasticSampler(data)
state = hvd.elastic.ObjectState(sampler=sampler, seen=[])
try:
    hvd.elastic.ObjectState(loader=DataLoader(data))
except ValueError as error:
    assert "belongs to one rank" in str(error), error
else:
    raise AssertionError("a state takes the loader of one rank")


@hvd.elastic.run
def train(state):
    while sampler.epoch < 2:
        # Its processes have fetched far more when the worker is lost.
        for batch in DataLoader(data, 2, sampler=sampler, num_workers=2, prefetch_factor=4):
            seen = hvd.allgather_object(batch.tolist())
            if len(state.seen) == 3 and hvd.generation() == 1 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.barrier()
            state.seen = [*state.seen, seen]
            sampler.record_batch(0, len(batch))
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)


train(state)
if hvd.rank() == 0:
    print(json.dumps([hvd.generation(), state.seen]), flush=True)
"""


@pytest.mark.parametrize("kind", ["plain", "stateful"])
@pytest.mark.parametrize("flags", ["--min-np 2 --restarts 9", "--min-np 1 --restarts 0"])
def test_what_a_loader_has_fetched_is_drawn_once(kind, flags, tmp_path):
    if kind == "stateful":
        pytest.importorskip("torchdata.stateful_dataloader")
    generation, seen = json.loads(output_of(PROGRAM, tmp_path, kind, flags=flags))
    assert generation == 2
    assert_drawn_once(seen, 40, 2)
