"""The checks of a backend on the arguments of ``torch.distributed``.

Ranks, lists and types are looked at before anything is sent. Sizes are compared by the collective,
so that all ranks hear of a disagreement, and with the outputs of this rank afterwards.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import torch

from hvd import basics

from .group_arguments import Reduction


def check_rank(what: str, rank: int, size: int) -> None:
    """Raises ValueError unless ``rank`` is one of a group of this size."""
    if not 0 <= rank < size:
        raise ValueError(f"{what} is {rank}, but the ranks of the group are 0 to {size - 1}")


def is_alone() -> bool:
    """Whether no launcher that hvd knows has put this process into a world of several."""
    return basics.size() == 1 and "HVD_JOB_ID" not in os.environ


def wrong_place(rank: int, size: int) -> ValueError:
    """The error of a program that names another place than this process has."""
    told = f"init_process_group() was told of rank {rank} of {size}, but this is rank "
    told += f"{basics.rank()} of {basics.size()} for hvd"
    if not is_alone():
        return ValueError(told)
    return ValueError(
        f"{told}, since hvdrun has not started this process: each one would train alone. Start "
        f"the program with hvdrun: hvdrun -np {size} {_command()} ; or set HVD_ALLOW_SINGLE=1, "
        "and name no rank and no size, if each process is meant to be a world of its own"
    )


def _command() -> str:
    """The command line of this program, without the words of multiprocessing."""
    if multiprocessing.parent_process() is None:
        return shlex.join(sys.orig_argv)
    return shlex.join([sys.executable, *sys.argv])


def check_length(what: str, given: Sequence[Any], length: int) -> None:
    """Raises ValueError unless the list has this length."""
    if len(given) != length:
        raise ValueError(f"{what} has {len(given)} items, but it must have {length}")


def check_type(what: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Raises ValueError unless the tensor has the type of the other one, which is sent."""
    if tensor.dtype != other.dtype:
        raise ValueError(f"{what} is of {tensor.dtype}, but the input is of {other.dtype}")


def rows_for_ranks(what: str, tensors: Sequence[torch.Tensor], size: int) -> torch.Tensor:
    """The tensors as rows of one. Raises ValueError unless each rank has one, of one size."""
    check_length(what, tensors, size)
    sizes = [one.numel() for one in tensors]
    if len(set(sizes)) > 1:
        raise ValueError(f"{what} has tensors of {sizes} elements, but they must be of one size")
    return torch.stack([one.reshape(-1) for one in tensors])


def equal_rows(what: str, tensor: torch.Tensor, size: int) -> torch.Tensor:
    """The tensor as a row for each rank. Raises ValueError if it cannot be divided."""
    if tensor.numel() % size != 0:
        raise ValueError(f"{what} has {tensor.numel()} elements, which {size} ranks cannot share")
    return tensor.reshape(size, tensor.numel() // size)


def splits_of(what: str, splits: Sequence[int], tensor: torch.Tensor, size: int) -> list[int]:
    """How many rows of the tensor belong to each rank; equally many, if ``splits`` is empty.

    Raises:
        ValueError: they are not the tensor's rows.
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if rows % size != 0 or not tensor.dim():
            raise ValueError(
                f"{what} is not given, but {size} ranks cannot share a tensor of shape "
                f"{list(tensor.shape)} equally"
            )
        return [rows // size] * size
    check_length(what, splits, size)
    if min(splits) < 0 or sum(splits) != rows:
        raise ValueError(f"{what} is {list(splits)}, but the tensor has {rows} rows")
    return list(splits)


def elements_of(splits: Sequence[int], tensor: torch.Tensor) -> list[int]:
    """The same in elements."""
    in_row = tensor[:1].numel()
    return [rows * in_row for rows in splits]


def check_received(what: str, expected: Sequence[int], received: Sequence[int]) -> None:
    """Raises ValueError unless as many elements have come from each rank as were expected."""
    if list(expected) != list(received):
        raise ValueError(
            f"{what} must have {list(received)} elements for what the ranks have sent, not "
            f"{list(expected)}"
        )


def check_reduction(what: str, reduction: Reduction, tensors: Sequence[torch.Tensor]) -> None:
    """Raises ValueError unless such tensors are reduced like this."""
    if any(one.is_complex() for one in tensors) and not reduction.is_linear():
        raise ValueError(f"{what}: a complex tensor is reduced by SUM or AVG")
    if any(one.is_floating_point() for one in tensors) and reduction.fold is not None:
        raise ValueError(f"{what}: BAND, BOR and BXOR are of integers and booleans")


def of_type(received: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Makes complex elements, if that is the type, of the pairs that have come."""
    return received.view(dtype) if dtype.is_complex else received


def fill(what: str, output: torch.Tensor, received: torch.Tensor) -> None:
    """Copies what has come. Raises ValueError if the output has another number of elements."""
    received = of_type(received, output.dtype)
    if output.numel() != received.numel():
        raise ValueError(
            f"{what} has {output.numel()} elements, but {received.numel()} have come for it"
        )
    output.copy_(received.view(output.shape))
