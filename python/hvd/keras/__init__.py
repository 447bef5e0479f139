"""hvd for Keras 3, on PyTorch, TensorFlow and JAX, with Horovod's names, arguments and meanings.

    import keras
    import hvd.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    model.fit(data, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ])

Gradients are averaged over all workers in the middle of ``fit()``, ``train_on_batch()`` and
``optimizer.apply()``.
"""

from hvd import (
    Compression,
    _every_framework,
    allgather,
    allgather_object,
    allreduce,
    broadcast,
    broadcast_object,
)
from hvd._every_framework import *  # noqa: F403

from . import callbacks, elastic
from .optimizer import DistributedOptimizer
from .variables import broadcast_global_variables, load_model

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "elastic",
    "load_model",
]
__all__ += _every_framework.__all__
