# pyright: basic, reportAttributeAccessIssue=true
"""A program as the documents show it, with types: scripts/lint checks it, two workers run it."""

from __future__ import annotations

import numpy as np
import torch

import hvd
import hvd.torch as ht


def reduced() -> float:
    total = hvd.allreduce(np.ones(3), op=hvd.Sum, name="array")
    handle = ht.allreduce_async_(torch.ones(3), name="tensor", op=ht.Sum)
    done: bool = ht.poll(handle)
    tensor: torch.Tensor = ht.synchronize(handle)
    several: list[torch.Tensor] = ht.grouped_allreduce([torch.ones(2)], op=ht.Average)
    size: int = ht.size()
    assert done in (True, False) and float(total[0]) == size
    return float(tensor[0]) + float(several[0][0])


def count(state: hvd.elastic.ObjectState) -> int:
    state.step += 1
    state.commit()
    return int(state.step)


@hvd.elastic.run
def train(state: ht.elastic.TorchState, steps: int) -> float:
    while state.step < steps:
        state.optimizer.zero_grad()
        loss = state.model(torch.ones(1, 2)).sum()
        loss.backward()
        state.optimizer.step()
        state.loss = float(loss)
        state.step += 1
        state.commit()
    return float(state.loss)


def main() -> None:
    hvd.init()
    assert reduced() == hvd.size() + 1
    assert count(hvd.elastic.ObjectState(step=0)) == 1

    model = torch.nn.Linear(2, 2)
    optimizer = ht.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        compression=ht.Compression.fp16,
    )
    ht.broadcast_parameters(model.state_dict(), root_rank=0)
    ht.broadcast_optimizer_state(optimizer, root_rank=0)
    state = ht.elastic.TorchState(model=model, optimizer=optimizer, step=0, loss=0.0)
    loss: float = train(state, 3)
    try:
        losses = ht.allgather_object(loss)
        print("typed", state.step, len(set(losses)), flush=True)
    except ht.HorovodInternalError as error:
        print(error.rank, error.host, error.cause)


if __name__ == "__main__":
    main()
