"""Arguments of the methods of a group of ``torch.distributed``, in all their forms.

torch's own calls give lists and options. The methods of a group also take one tensor, an
operation or the rank of a root in their places, as those of torch's own backends do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from hvd._work import Average, Max, Min, Product, ReduceOp, Sum


def listed(tensors: Any) -> list[torch.Tensor]:
    """Gives a list, also of one tensor alone."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def listed_pair(outputs: Any, inputs: Any) -> tuple[Any, Any]:
    """Gives outputs and inputs as lists, if one of them is a tensor alone."""
    is_one = isinstance(outputs, torch.Tensor) or isinstance(inputs, torch.Tensor)
    return ([outputs], [inputs]) if is_one else (outputs, inputs)


def root_of(opts: Any) -> int:
    """Gives the rank of the root in the group."""
    if opts is None:
        return 0
    return opts if isinstance(opts, int) else opts.rootRank


Fold = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Reduction(NamedTuple):
    """How the elements of all ranks become one.

    ``prescale``: they are multiplied by it before. ``fold``: hvd does not have the operation, so
    each rank gets the elements of all and does it itself.
    """

    op: ReduceOp = Sum
    prescale: float = 1.0
    fold: Fold | None = None

    def is_linear(self) -> bool:
        """Whether it is a sum of multiples, so that pairs of real numbers do for a complex one."""
        return self.op in (Sum, Average) and self.fold is None


_REDUCTIONS = {
    "SUM": Reduction(Sum),
    "AVG": Reduction(Average),
    "PRODUCT": Reduction(Product),
    "MIN": Reduction(Min),
    "MAX": Reduction(Max),
    "BAND": Reduction(fold=torch.bitwise_and),
    "BOR": Reduction(fold=torch.bitwise_or),
    "BXOR": Reduction(fold=torch.bitwise_xor),
}


def reduction_of(opts: Any) -> Reduction:
    """Gives what torch names by this. Raises ValueError of what hvd cannot do."""
    given = getattr(opts, "reduceOp", opts)
    if given is None:
        return Reduction()
    for name, reduction in _REDUCTIONS.items():
        if given == getattr(dist.ReduceOp, name, None):
            return reduction
    # Old versions of torch keep the factor to themselves.
    factor = getattr(given, "factor", None)
    if factor is None:
        raise ValueError(f"hvd reduces by {', '.join(_REDUCTIONS)}, not by {given} of torch")
    return Reduction(prescale=float(factor))


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a view of complex elements as pairs of real ones, which hvd sends and sums."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def real_input(tensor: torch.Tensor) -> torch.Tensor:
    """Gives the same of a tensor that is only read. It may be conjugated lazily."""
    return as_real(tensor.detach().resolve_conj())
