"""Elastic, distributed training: the calls of hvd for Python, on NumPy arrays.

    import hvd

    hvd.init()
    total = hvd.allreduce(array, op=hvd.Sum)

``hvd.torch`` has the same calls for PyTorch, ``hvd.elastic`` what survives the loss of workers.
Programs are started by ``hvdrun -np 4 python train.py``, or by ``hvd.run(function, num_proc=4)``.
All calls are safe from any thread, and Ctrl-C ends each one that waits.
"""

from ._core import version as __version__
from ._work import (
    Adasum,
    Average,
    Handle,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    poll,
    synchronize,
)
from .arrays import (
    allgather,
    allgather_async,
    allreduce,
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
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from .basics import (
    ProcessSet,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    generation,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_ids,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from .compression import Compression
from .errors import (
    CollectiveError,
    DisagreementError,
    DuplicateProcessSetError,
    HorovodInternalError,
    HostsUpdatedInterrupt,
    HvdError,
    InitError,
    InternalError,
    InvalidArgumentError,
    LeftError,
    LostMemberError,
    NotAMemberError,
    NotInitializedError,
    ProcessSetError,
    ShutDownError,
    StateDivergedError,
    StateLostError,
    UnknownProcessSetError,
)
from .objects import allgather_object, barrier, broadcast_object, join
from .paths import cmake_path, include_path, library_path
from . import elastic
from .launch import run

__all__ = [name for name in dir() if not name.startswith("_")]
