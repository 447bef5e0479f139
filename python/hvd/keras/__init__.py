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

from hvd import Compression, _every_framework, allgather_object, broadcast_object
from hvd._every_framework import *  # noqa: F403

from . import callbacks, elastic
from .functions import allgather, allreduce, broadcast, reducescatter
from .optimizer import DistributedOptimizer, PartialDistributedOptimizer
from .variables import broadcast_global_variables, load_model

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _every_framework.__all__
