# An elastic job for jobs_test.py, written as programs for Horovod are: a learning rate that a reset
# callback sets by what the state holds, and collectives between backward() and step().
#
#   reset_program.py STEPS
#
# In the first world the last rank kills itself after its backward pass, and is started again. All
# ranks compare learning rate and weights in each step.
import os
import signal
import sys

import torch

import hvd.torch as hvd


def main():
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.125)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda epoch: 1.0)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(
        model=model, optimizer=optimizer, scheduler=scheduler, step=0, resets=0
    )

    def on_reset():
        state.resets += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.125 * (1 + state.resets)

    state.register_reset_callbacks([on_reset])

    @hvd.elastic.run
    def train(state):
        while state.step < int(sys.argv[1]):
            optimizer.zero_grad()
            loss = model(torch.full((2, 3), float(hvd.rank()))).mean()
            loss.backward()
            if hvd.generation() == 1 and state.step == 3 and hvd.rank() == hvd.size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(loss.detach(), name="loss")
            optimizer.step()
            state.step += 1
            own = (state.resets, inner.param_groups[0]["lr"], model.weight.tolist())
            others = hvd.allgather_object(own)
            assert all(one == own for one in others), others
            assert state.scheduler is scheduler
            state.commit()

    train(state)
    print(f"resets {state.resets}, learning rate {optimizer.param_groups[0]['lr']}", flush=True)


main()
