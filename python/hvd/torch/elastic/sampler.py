"""``ElasticSampler`` for PyTorch's DataLoader."""

from __future__ import annotations

import torch

from hvd.sampler import ElasticSampler as _ElasticSampler

__all__ = ["ElasticSampler"]


class ElasticSampler(_ElasticSampler, torch.utils.data.Sampler):  # type: ignore[type-arg]
    """``hvd.elastic.ElasticSampler`` as a sampler for a DataLoader, also one with workers.

    It takes the same arguments: dataset, shuffle and seed.
    """
