"""The calls of hvd on PyTorch's tensors, with Horovod's names, arguments and meanings.

    import hvd.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Collectives that are not in place are differentiable.
"""

import torch as _torch

from hvd import _every_framework
from hvd._every_framework import *  # noqa: F403

from . import elastic
from .allreduce_ops import allreduce, grouped_allreduce, sparse_allreduce_async
from .compression import Compression
from .functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from .ops import (
    allgather,
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    recv,
    recv_async,
    reducescatter,
    reducescatter_async,
    send,
    send_async,
)
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm
from .tensors import empty

if _torch.distributed.is_available():
    from .registration import register as _register

    _register()

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "empty",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "recv",
    "recv_async",
    "reducescatter",
    "reducescatter_async",
    "send",
    "send_async",
    "sparse_allreduce_async",
]
__all__ += _every_framework.__all__

# It takes its names from __all__.
from . import mpi_ops as mpi_ops  # noqa: E402
