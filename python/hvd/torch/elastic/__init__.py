"""Elastic training of PyTorch's models.

import hvd.torch as hvd

state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)

@hvd.elastic.run
def train(state):
    for state.batch in range(state.batch, 1000):
        ...
        state.commit()

train(state)
"""

from hvd.elastic import ObjectState, State, run

from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
