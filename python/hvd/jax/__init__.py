"""The calls of hvd on JAX's arrays, with Horovod's names, arguments and meanings.

    import hvd.jax as hvd

    hvd.init()
    params = hvd.broadcast_parameters(params, root_rank=0)

    @jax.jit
    def step(params, batch):
        gradients = hvd.allreduce(jax.grad(loss)(params, batch))
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

``allreduce()`` takes a whole pytree, which is reduced as one group, also in functions that JAX
traces: under ``jit``, ``grad`` and ``vmap``, on CPUs. The other calls are for arrays outside them.
"""

from hvd import (
    Compression,
    _every_framework,
    allgather_object,
    broadcast_object,
)
from hvd._every_framework import *  # noqa: F403

from . import elastic
from .ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_async,
    broadcast_parameters,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
    send,
    send_async,
)
from .shards import ShardReducer

__all__ = [
    "Compression",
    "ShardReducer",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "broadcast_parameters",
    "elastic",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "reducescatter",
    "reducescatter_async",
    "send",
    "send_async",
]
__all__ += _every_framework.__all__
