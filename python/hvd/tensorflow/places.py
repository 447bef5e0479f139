"""Numbers of the world as tensors, which a ``tf.function`` asks for at each execution.

``hvd.size()`` and the like in such a function are asked for once, when it is traced.
"""

from __future__ import annotations

import tensorflow as tf

from hvd import basics
from hvd.basics import ProcessSet, global_process_set

from . import kernels
from .kernels import Place, not_converted


@not_converted
def size_op(name: str | None = None, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The number of ranks in the set, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(process_set.size(), tf.int32)
    return kernels.place(Place.SIZE, process_set)


@not_converted
def rank_op(name: str | None = None, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """This worker's rank in the set, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(process_set.rank(), tf.int32)
    return kernels.place(Place.RANK, process_set)


@not_converted
def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of workers on this host, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(basics.local_size(), tf.int32)
    return kernels.place(Place.LOCAL_SIZE, global_process_set)


@not_converted
def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This worker's rank on its host, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(basics.local_rank(), tf.int32)
    return kernels.place(Place.LOCAL_RANK, global_process_set)


@not_converted
def process_set_included_op(
    process_set: ProcessSet = global_process_set, name: str | None = None
) -> tf.Tensor:
    """1 if this worker is a member of the set, else 0, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(int(process_set.included()), tf.int32)
    return kernels.place(Place.INCLUDED, process_set)
