"""The calls of hvd on TensorFlow's tensors, with Horovod's names, arguments and meanings.

    import tensorflow as tf
    import hvd.tensorflow as hvd

    hvd.init()
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def training_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

All calls are made eagerly or under ``tf.function``, on CPUs. There are none for sessions of
TensorFlow 1.
"""

from typing import Any

from hvd import _every_framework, allgather_object, broadcast_object
from hvd._every_framework import *  # noqa: F403

from . import elastic
from .allreduce_ops import allreduce, grouped_allreduce
from .compression import Compression
from .functions import broadcast_, broadcast_global_variables, broadcast_variables
from .gradients import DistributedGradientTape, PartialDistributedGradientTape
from .ops import (
    allgather,
    allgather_async,
    allreduce_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
    send,
    send_async,
)
from .optimizer import DistributedOptimizer
from .places import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op

__all__ = [
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "elastic",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "reducescatter_async",
    "send",
    "send_async",
    "size_op",
]
__all__ += _every_framework.__all__


def __getattr__(name: str) -> Any:
    # It needs Keras, which programs without it need not wait for.
    if name == "SyncBatchNormalization":
        from .sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
