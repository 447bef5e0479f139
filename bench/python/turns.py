# Calls that take turns in the processes of one job, so that all of them meet the same machine.
import argparse
import json
import statistics
import time

import numpy as np

import hvd


def arguments(rounds):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--json", action="store_true", help="print all times, in ms")
    return parser.parse_args()


def measure(cases, rounds, warm_up=3):
    """The times until the last rank is done, in ms, by the names of the calls in `cases`."""
    times = {name: [] for name in cases}
    for turn in range(rounds + warm_up):
        for name, call in cases.items():
            hvd.barrier()
            begin = time.perf_counter()
            call()
            if turn >= warm_up:
                times[name].append(1000 * (time.perf_counter() - begin))
    return {name: hvd.allreduce(np.array(own), op=hvd.Max).tolist() for name, own in times.items()}


def report(times, as_json):
    """Prints them on rank 0. Gives the medians on all ranks."""
    medians = {name: statistics.median(own) for name, own in times.items()}
    if hvd.rank() == 0 and as_json:
        print(json.dumps(times))
    elif hvd.rank() == 0:
        for name, own in times.items():
            print(f"{name:30s} {medians[name]:8.2f} ms, least {min(own):8.2f}")
    return medians
