"""Batch normalization over the batches of all ranks, on CPUs and GPUs.

The mean and the variance are those of the whole batch, and so are the gradients: Ioffe and
Szegedy, "Batch Normalization", 2015, with every sum taken over all ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from hvd import basics
from hvd._work import Sum

from .adapter import collectives


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d``, ``2d`` and ``3d``, with statistics of all ranks in training.

    The ranks' batches may differ in size. In evaluation it uses the running statistics, alone.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes [N, C, ...] by channel."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or not basics.is_initialized() or basics.size() == 1:
            return self._run_alone(input, uses_batch)
        return _SyncBatchNorm.apply(
            input,
            self.weight,
            self.bias,
            self.running_mean if self.training else None,
            self.running_var if self.training else None,
            self.eps,
            self._momentum(),
        )

    def _momentum(self) -> float:
        """The share of this batch in the running statistics; counts the batch."""
        if not self.training or not self.track_running_stats:
            return 0.0
        self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        if self.momentum is None:
            return 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]
        return self.momentum

    def _run_alone(self, input: torch.Tensor, uses_batch: bool) -> torch.Tensor:
        return torch.nn.functional.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight,
            self.bias,
            uses_batch,
            self._momentum(),
            self.eps,
        )


def _sum_of_ranks(tensor: torch.Tensor) -> torch.Tensor:
    return collectives.allreduce_(tensor.contiguous(), op=Sum)


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, weight, bias, running_mean, running_var, eps, momentum):  # type: ignore[no-untyped-def]
        channels = x.shape[1]
        others = [dim for dim in range(x.dim()) if dim != 1]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        own = x.to(wide)
        count = own.new_full((1,), x.numel() // max(channels, 1))
        # In two steps, since a difference of large sums would lose digits.
        sums = _sum_of_ranks(torch.cat([own.sum(others), count]))
        count = sums[-1]
        mean = sums[:-1] / count
        shape = [1, channels] + [1] * (x.dim() - 2)
        centred = own - mean.view(shape)
        variance = _sum_of_ranks((centred * centred).sum(others)) / count
        scale = torch.rsqrt(variance + eps)
        normal = centred * scale.view(shape)

        if running_mean is not None:
            unbiased = variance * (count / torch.clamp(count - 1, min=1))
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        ctx.save_for_backward(normal, scale, weight, count)
        ctx.layout = (others, shape)
        output = normal
        if weight is not None:
            output = output * weight.to(wide).view(shape)
        if bias is not None:
            output = output + bias.to(wide).view(shape)
        return output.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient):  # type: ignore[no-untyped-def]
        normal, scale, weight, count = ctx.saved_tensors
        others, shape = ctx.layout
        wide = gradient.to(normal.dtype)
        sum_of_gradient = wide.sum(others)
        sum_of_product = (wide * normal).sum(others)
        channels = sum_of_gradient.numel()
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = _sum_of_ranks(torch.cat([sum_of_gradient, sum_of_product])) / count
            mean = sums[:channels].view(shape)
            along = sums[channels:].view(shape)
            factor = scale if weight is None else scale * weight.to(scale.dtype)
            of_input = ((wide - mean - normal * along) * factor.view(shape)).to(gradient.dtype)
        of_weight = None
        if weight is not None and ctx.needs_input_grad[1]:
            of_weight = sum_of_product.to(weight.dtype)
        of_bias = sum_of_gradient.to(gradient.dtype) if ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None, None, None, None
