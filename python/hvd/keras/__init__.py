"""hvd for Keras 3, on its backends PyTorch and JAX, with Horovod's names, arguments and meanings.

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
    Adasum,
    Average,
    CollectiveError,
    Compression,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    HvdError,
    Max,
    Min,
    ProcessSet,
    Product,
    ReduceOp,
    Sum,
    add_process_set,
    allgather,
    allgather_object,
    allreduce,
    barrier,
    broadcast,
    broadcast_object,
    cross_rank,
    cross_size,
    generation,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    run,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

from . import callbacks, elastic
from .optimizer import DistributedOptimizer
from .variables import broadcast_global_variables, load_model

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "HvdError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "cross_rank",
    "cross_size",
    "elastic",
    "generation",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "remove_process_set",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
