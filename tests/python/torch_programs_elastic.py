# The programs of torch_programs.py in an elastic job, in each of which a worker is killed once:
#
#   hvdrun -np 2 --min-np 2 torch_programs_elastic.py FOLDER [PROGRAM...]
#
# A worker dies between its forward and its backward pass, while the others are in theirs. What has
# died already is noted in the folder. The weights at the end are those of one process.
import os
import signal
import sys

import torch
from torch_programs import PROGRAMS, STEPS, VERSION, Hvd, Way, weights_of

import hvd.torch as hvd

KILLED_IN = 3  # of the steps


class Mortal(Hvd):
    """Its process dies where it is told to."""

    dies = False

    def loss(self, of_rank):
        loss = super().loss(of_rank)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss


def is_first_time(folder, name):
    try:
        os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def expect_same(name, weights, expected):
    tolerance = 1e-9 if PROGRAMS[name].exact else 1e-5
    for one, other in zip(weights, expected):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=name)


def main():
    folder, *names = sys.argv[1:]
    hvd.init()
    names = names or [
        name for name, one in PROGRAMS.items() if one.elastic and one.least_torch <= VERSION
    ]
    ways = {name: Mortal(hvd.size()) for name in names}
    steps = {name: PROGRAMS[name].make(way) for name, way in ways.items()}
    lasting = {}
    for name, way in ways.items():
        lasting |= {f"{name}_module_{i}": one for i, one in enumerate(way.modules)}
        lasting |= {f"{name}_optimizer_{i}": one for i, one in enumerate(way.optimizers)}
    state = hvd.elastic.TorchState(**lasting, done=0)

    @hvd.elastic.run
    def train(state):
        for index, name in enumerate(names):
            way = ways[name]
            for i in range(STEPS):
                if state.done >= index * STEPS + i + 1:
                    continue
                is_victim = i == KILLED_IN and hvd.rank() == index % hvd.size()
                way.dies = is_victim and is_first_time(folder, name)
                steps[name](i)
                state.done += 1
                state.commit()

    train(state)
    for name, way in ways.items():
        alone = Way(hvd.size())
        step = PROGRAMS[name].make(alone)
        for i in range(STEPS):
            step(i)
        expect_same(name, weights_of(way), weights_of(alone))
    print("as one process:", len(names), "programs,", len(os.listdir(folder)), "kills", flush=True)
    hvd.shutdown()


main()
