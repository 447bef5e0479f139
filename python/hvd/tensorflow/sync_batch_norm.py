"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvd._work import Average

from .allreduce_ops import allreduce


@tf.keras.utils.register_keras_serializable("hvd")  # type: ignore[untyped-decorator]
class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """As ``tf.keras.layers.BatchNormalization``, with statistics of all ranks in training.

    Each rank counts the same, so their batches should be of one size.
    """

    def _moments(self, *arguments: Any, **options: Any) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super()._moments(*arguments, **options)
        own = tf.stack([mean, variance + tf.square(mean)])
        mean, mean_of_squares = tf.unstack(allreduce(own, op=Average))
        return mean, tf.maximum(mean_of_squares - tf.square(mean), 0.0)
