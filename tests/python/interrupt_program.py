# Rank 0 waits in one call of hvd for a rank that never comes, and gets Ctrl-C there. It says how
# long that took, and ends with exit code 42, by which hvdrun ends the other rank.
#
#   interrupt_program.py CALL
import datetime
import os
import signal
import sys
import threading
import time

import numpy as np
import torch

import hvd
import hvd.torch


def in_run(function):
    state = hvd.elastic.ObjectState(step=0)
    hvd.elastic.run(function)(state)


def optimizer_step():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.torch.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    weight.sum().backward()
    optimizer.synchronize()


def sharded_step():
    weight = torch.nn.Parameter(torch.ones(3))
    inner = torch.optim.SGD([weight], lr=1.0)
    optimizer = hvd.torch.DistributedOptimizer(inner, shards=4, deterministic=True)
    for _ in optimizer.shards():
        weight.sum().backward()


def reconfigure(**arguments):
    handles = [torch.distributed._get_reconfigure_handle()]
    torch.distributed._reconfigure(1, handles, **arguments)


CALLS = {
    "init": hvd.init,
    "allreduce": lambda: hvd.allreduce(np.ones(10)),
    "torch_allreduce": lambda: hvd.torch.allreduce(torch.ones(10)),
    "barrier": hvd.barrier,
    "join": hvd.join,
    "broadcast_object": lambda: hvd.broadcast_object(1, root_rank=1),
    "allgather_object": lambda: hvd.allgather_object(1),
    "add_process_set": lambda: hvd.add_process_set([0]),
    "optimizer": optimizer_step,
    "shards": sharded_step,
    "commit": lambda: in_run(lambda state: state.commit()),
    "init_process_group": lambda: torch.distributed.init_process_group("hvd"),
    "all_reduce": lambda: torch.distributed.all_reduce(torch.ones(10)),
    "reconfigure": reconfigure,
    "reconfigure_in_time": lambda: reconfigure(timeout=datetime.timedelta(minutes=10)),
    "run": lambda: in_run(lambda state: None),
}


def main():
    call = sys.argv[1]
    is_first = os.environ["HVD_RANK"] == "0"
    if call != "init":
        hvd.init(process_sets="dynamic")
    if call == "all_reduce":
        torch.distributed.init_process_group("hvd")
    if "reconfigure" in call:
        torch.distributed.init_process_group("hvd", enable_reconfigure=True)
    if not is_first:
        signal.pause()
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.5, interrupt).start()
    try:
        CALLS[call]()
    except KeyboardInterrupt:
        print(f"interrupted after {1000 * (time.monotonic() - sent[0]):.0f} ms", flush=True)
        sys.exit(42)
    print("it came back")


main()
