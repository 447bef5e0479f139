"""What may be in a state, which all ranks get from rank 0, and what is one rank's own."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from .sampler import ElasticSampler

_REMEDY = (
    "all ranks get what rank 0 has. Put a hvd.elastic.ElasticSampler into the state, which shares "
    "out the samples that are left, and make the loader over it; of another loader keep what is "
    "the same on all ranks, such as the number of the step"
)


def _torch(*path: str) -> Any:
    """What torch has there, and a tuple of no types if the program does not use torch."""
    value: Any = sys.modules.get("torch")
    for name in path:
        value = getattr(value, name, None)
    return () if value is None else value


def has_state_dict(value: Any) -> bool:
    """Whether it can give its state, and take it back."""
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def check_is_common(name: str, value: Any) -> None:
    """Raises ValueError of a loader or sampler of torch that is bound to its rank."""
    data = ("utils", "data")
    loaders = _torch(*data, "DataLoader"), _torch(*data, "dataloader", "_BaseDataLoaderIter")
    if isinstance(value, (*loaders, _torch(*data, "DistributedSampler"))):
        raise ValueError(
            f'"{name}" is a {type(value).__name__}, which belongs to one rank, but of a state '
            f"{_REMEDY}"
        )


def may_differ(value: Any) -> bool:
    """Whether it may be one rank's own: it gives samples, or random numbers."""
    if isinstance(value, (ElasticSampler, _torch("nn", "Module"))):
        return False
    if has_state_dict(value):
        return hasattr(value, "__iter__") or hasattr(value, "__next__")
    numbers = random.Random, np.random.Generator, np.random.RandomState
    return isinstance(value, (*numbers, _torch("Generator")))


def check_is_same(name: str, differs: bool) -> None:
    """Raises ValueError if it ``differs`` between ranks where a run begins."""
    if differs:
        raise ValueError(
            f'"{name}" is not the same on all ranks where the run begins, but of a state {_REMEDY}'
        )
