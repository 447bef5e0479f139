"""Collectives on values that Keras has: numbers, arrays, and tensors of its backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import hvd
from hvd._work import Average
from hvd.compression import Compression


def _array_of(value: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(value))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> np.ndarray[Any, Any]:
    """``hvd.allreduce()``, with Horovod's order of arguments. Gives an array of NumPy."""
    return hvd.allreduce(
        _array_of(value),
        average,
        name,
        op,
        prescale_factor,
        postscale_factor,
        compression=compression,
    )


def allgather(value: Any, name: str | None = None) -> np.ndarray[Any, Any]:
    """``hvd.allgather()``. Gives an array of NumPy."""
    return hvd.allgather(_array_of(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> np.ndarray[Any, Any]:
    """``hvd.broadcast()``. Gives an array of NumPy."""
    return hvd.broadcast(_array_of(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> np.ndarray[Any, Any]:
    """``hvd.reducescatter()``. Gives an array of NumPy."""
    return hvd.reducescatter(_array_of(value), op, name)
