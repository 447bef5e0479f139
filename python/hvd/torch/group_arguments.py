"""Arguments of the methods of a group of ``torch.distributed``, in all their forms.

torch's own calls give lists and options. The methods of a group also take one tensor, an
operation or the rank of a root in their places, as those of torch's own backends do.
"""

from __future__ import annotations

from typing import Any

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


def op_of(opts: Any) -> ReduceOp:
    """Gives hvd's operation. Raises ValueError of one that hvd does not have."""
    given = getattr(opts, "reduceOp", opts)
    if given is None:
        return Sum
    known = {"SUM": Sum, "AVG": Average, "PRODUCT": Product, "MIN": Min, "MAX": Max}
    unknown = "BAND", "BOR", "BXOR", "PREMUL_SUM"
    named = [one for one in (*known, *unknown) if given == getattr(dist.ReduceOp, one, None)]
    if named and named[0] in known:
        return known[named[0]]
    raise ValueError(
        f"hvd reduces by {', '.join(known)}, not by {named[0] if named else given} of torch"
    )


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a view of complex elements as pairs of real ones, which hvd sends and sums."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def real_input(tensor: torch.Tensor) -> torch.Tensor:
    """Gives the same of a tensor that is only read. It may be conjugated lazily."""
    return as_real(tensor.detach().resolve_conj())
