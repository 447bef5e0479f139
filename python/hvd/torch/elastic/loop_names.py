"""The names that the module of each framework with a loop of its own has beside its own."""

from hvd import _every_framework
from hvd._every_framework import *  # noqa: F403
from hvd.torch import allgather, allgather_object, allreduce, broadcast, broadcast_object

from . import loops as elastic

__all__ = [
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "elastic",
]
__all__ += _every_framework.__all__
