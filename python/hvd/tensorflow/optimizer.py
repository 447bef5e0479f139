"""An optimizer of Keras whose gradients are those of all workers."""

from __future__ import annotations

from typing import Any


def DistributedOptimizer(optimizer: Any, name: str | None = None, **options: Any) -> Any:
    """``hvd.keras.DistributedOptimizer()``, which says what ``options`` there are.

    Raises:
        ImportError: Keras is older than 3.
    """
    from hvd.keras import optimizer as of_keras

    return of_keras.DistributedOptimizer(optimizer, name, **options)
