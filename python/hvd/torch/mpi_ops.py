"""The names of ``hvd.torch``, for programs that import them from ``horovod.torch.mpi_ops``."""

from . import *  # noqa: F403
