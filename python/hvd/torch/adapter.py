"""PyTorch's tensors as collectives take and give them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from hvd import _core, _work
from hvd._collectives import Adapter, Collectives
from hvd.compression import TakesCompressors

from .tensors import TYPES, owner_of, result_tensor, stream_of, tensor_tuple, writing


class _Tensors(TakesCompressors, Adapter[torch.Tensor]):
    """Dense tensors; those whose elements are scattered by way of a copy."""

    names_by_kind = True

    def read(self, given: Any) -> torch.Tensor:
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"a tensor is needed, not {type(given).__name__}")
        if given.layout != torch.strided:
            raise ValueError(
                f"a dense tensor is needed, not one of layout {given.layout}; "
                "sparse_allreduce_async() takes sparse ones"
            )
        # The memory of a tensor that is negated lazily holds the opposite.
        return given.detach().resolve_neg().contiguous()

    def change(self, given: Any) -> torch.Tensor:
        return self.read(given)

    def changed(self, given: Sequence[torch.Tensor], changed: Sequence[torch.Tensor]) -> None:
        with writing(given):
            for tensor, dense in zip(given, changed):
                if tensor.data_ptr() != dense.data_ptr():
                    tensor.copy_(dense)

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def describe(self, tensor: torch.Tensor) -> _work.Tensor:
        return tensor_tuple(tensor)

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor)

    def result(self, work: _core.Work, result: _work.Tensor, like: torch.Tensor) -> torch.Tensor:
        return result_tensor(work, result, like)

    def rows_of(self, splits: Any) -> list[int]:
        given = torch.as_tensor(splits)
        if isinstance(splits, torch.Tensor) and (
            given.is_floating_point() or given.is_complex() or given.dtype == torch.bool
        ):
            raise ValueError(f"splits are whole numbers, not of type {given.dtype}")
        return _work.whole_numbers(given.reshape(-1).tolist())

    def splits(self, rows: list[int], given: Any, like: torch.Tensor) -> torch.Tensor:
        device = given.device if isinstance(given, torch.Tensor) else like.device
        return torch.tensor(rows, dtype=torch.int32, device=device)

    def stream(self, tensors: Sequence[torch.Tensor]) -> int:
        return stream_of(tensors[0]) if tensors else -1


class _TensorsOfPrograms(_Tensors):
    """Tensors that a program may change while they are in flight.

    Work keeps them alive, but torch frees the memory that a tensor grows out of. So it refuses to
    resize tensors of the host that such a call was given, also afterwards, since it knows no way
    back. The calls that wait do not need that.
    """

    def goes_on(self, given: Sequence[torch.Tensor]) -> None:
        for tensor in given:
            if tensor.dtype not in TYPES or tensor.layout != torch.strided:
                continue
            if tensor.is_contiguous() and not tensor.is_neg():  # else a copy of it is in flight
                with contextlib.suppress(RuntimeError, TypeError):  # memory of other kinds
                    owner_of(tensor)


collectives: Collectives[torch.Tensor] = Collectives(_Tensors())
collectives_of_programs: Collectives[torch.Tensor] = Collectives(_TensorsOfPrograms())
