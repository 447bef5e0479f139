"""Numbers of the world as tensors, which a ``tf.function`` asks for at each execution.

``hvd.size()`` and the like in such a function are asked for once, when it is traced.
"""

from __future__ import annotations

import tensorflow as tf

from hvd import _core, basics
from hvd.basics import ProcessSet, global_process_set, number_of

from . import kernels
from .kernels import Place, not_converted


@not_converted
def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks in the process set, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(_core.process_set_size(process_set_id), tf.int32)
    return kernels.place(Place.SIZE, process_set_id)


@not_converted
def rank_op(name: str | None = None, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """This worker's rank in the set, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(process_set.rank(), tf.int32)
    return kernels.place(Place.RANK, number_of(process_set))


@not_converted
def local_size_op(name: str | None = None) -> tf.Tensor:
    """The number of workers on this host, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(basics.local_size(), tf.int32)
    return kernels.place(Place.LOCAL_SIZE)


@not_converted
def local_rank_op(name: str | None = None) -> tf.Tensor:
    """This worker's rank on its host, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(basics.local_rank(), tf.int32)
    return kernels.place(Place.LOCAL_RANK)


@not_converted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this worker is a member of the process set, else 0, as int32."""
    del name
    if tf.executing_eagerly():
        return tf.constant(int(_core.process_set_included(process_set_id)), tf.int32)
    return kernels.place(Place.INCLUDED, process_set_id)
