"""hvd as a backend of ``torch.distributed``.

    import hvd.torch
    torch.distributed.init_process_group("hvd")

Programs for DistributedDataParallel run unchanged under ``hvdrun``, which sets what ``env://``
reads. FSDP needs torch 2.15, where a backend may be written in Python. ``new_group`` makes process
sets. A receive must name its sender. A group that is made with ``enable_reconfigure`` goes on in
later worlds of an elastic job (see ``reconfigure``).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from hvd._work import Handle, Kind, start
from hvd.elastic import note_hidden_failure
from hvd.errors import HorovodInternalError

from . import checks
from .adapter import collectives
from .allreduce_ops import start_sparse_allreduce
from .group_arguments import (
    Fold,
    Reduction,
    as_real,
    listed,
    listed_pair,
    real_input,
    reduction_of,
    root_of,
)
from .group_base import GroupBase
from .work import Done, HvdWork, seconds_of


class HvdProcessGroup(GroupBase):
    """A group of ``torch.distributed`` whose collectives are hvd's."""

    # --- point to point ---

    def send(self, tensors: list[torch.Tensor], receiver: int, tag: int = 0) -> Any:
        checks.check_rank("send: dst", receiver, self._own_size)
        name = self._name_between(self._own_rank, receiver, tag)
        handle = collectives.send_async(
            real_input(tensors[0]).reshape(-1), self._ranks[receiver], name
        )
        return self._kept(HvdWork(handle, tensors), f"send to rank {receiver}")

    def recv(self, tensors: list[torch.Tensor], sender: int, tag: int = 0) -> Any:
        checks.check_rank("recv: src", sender, self._own_size)
        what = f"recv from rank {sender}"
        name = self._name_between(sender, self._own_rank, tag)
        tensor = as_real(tensors[0].detach())
        dense = tensor.reshape(-1)
        handle = collectives.recv_async(dense, self._ranks[sender], name)
        if dense.data_ptr() == tensor.data_ptr() and not tensor.is_cuda:
            return self._kept(HvdWork(handle, tensors, sender=sender), what)

        def finish(received: torch.Tensor) -> None:
            if dense.data_ptr() != tensor.data_ptr():
                tensor.copy_(received.view(tensor.shape))

        return self._kept(HvdWork(handle, tensors, finish, sender=sender), what)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Any:
        raise NotImplementedError(
            "recv() over hvd must name the rank that sends: recv(tensor, src)"
        )

    # --- in place ---

    def allreduce_coalesced(
        self, tensors: list[torch.Tensor] | torch.Tensor, opts: Any = None, *, op: Any = None
    ) -> Any:
        tensors = listed(tensors)
        reduction = reduction_of(opts if op is None else op)
        checks.check_reduction("all_reduce", reduction, tensors)
        is_sparse = any(tensor.is_sparse for tensor in tensors)
        if reduction.fold is not None and not is_sparse:
            return self._all_of([self._fold(reduction.fold, one) for one in tensors], tensors)
        name = self._name("allreduce")
        failures = self._failures if self._failures and self._failures.watch() else None
        try:
            if is_sparse:
                return self._allreduce_sparse(name, tensors, reduction, failures)
            handle = self._allreduce(name, [as_real(tensor) for tensor in tensors], reduction)
        except HorovodInternalError as error:
            if failures is None:
                note_hidden_failure(error)  # in a backward pass torch makes another type of it
                raise
            return HvdWork(Done(error), tensors, failures=failures)
        return self._work(name, handle, tensors, failures=failures)

    allreduce = allreduce_coalesced

    def _allreduce(
        self, name: str, tensors: list[torch.Tensor], reduction: Reduction
    ) -> Handle[list[torch.Tensor]]:
        return collectives.grouped_allreduce_async_(
            tensors,
            name=name,
            op=reduction.op,
            prescale_factor=reduction.prescale,
            process_set=self._set,
        )

    def _fold(self, fold: Fold, tensor: torch.Tensor, is_wanted: bool = True) -> HvdWork:
        """Reduces a tensor in place by an operation of this rank."""
        name = self._name("fold")
        handle = collectives.allgather_async(tensor.reshape(1, -1), name, self._set)

        def finish(rows: torch.Tensor) -> None:
            if is_wanted:
                checks.fill("all_reduce: tensor", tensor, functools.reduce(fold, rows))

        return self._work(name, handle, [tensor], finish)

    def _allreduce_sparse(
        self,
        name: str,
        tensors: list[torch.Tensor],
        reduction: Reduction,
        failures: Any,
    ) -> HvdWork:
        if len(tensors) > 1 or not reduction.is_linear() or reduction.prescale != 1:
            raise ValueError(
                "all_reduce: a sparse tensor is reduced by SUM or AVG, and not with other tensors"
            )
        handle = start_sparse_allreduce(tensors[0], name, reduction.op, self._set)
        return self._work(name, handle, tensors, tensors[0].copy_, failures)

    def broadcast(
        self, tensors: list[torch.Tensor] | torch.Tensor, opts: Any = None, *, root: Any = None
    ) -> Any:
        tensors = listed(tensors)
        root = root_of(opts if root is None else root)
        checks.check_rank("broadcast: src", root, self._own_size)
        name = self._name("broadcast")
        handle = collectives.broadcast_async_(
            as_real(tensors[0]), self._ranks[root], name, self._set
        )
        return self._work(name, handle, tensors)

    def reduce(
        self,
        tensors: list[torch.Tensor] | torch.Tensor,
        opts: Any = None,
        op: Any = None,
        *,
        root: Any = None,
    ) -> Any:
        tensors = listed(tensors)
        reduction = reduction_of(op if op is not None or isinstance(opts, int) else opts)
        root = root_of(opts if root is None else root)
        checks.check_rank("reduce: dst", root, self._own_size)
        checks.check_reduction("reduce", reduction, tensors)
        if reduction.fold is not None:
            works = [self._fold(reduction.fold, one, self._own_rank == root) for one in tensors]
            return self._all_of(works, tensors)
        name = self._name("reduce")
        copies = [real_input(tensor).clone() for tensor in tensors]
        handle = self._allreduce(name, copies, reduction)

        def finish(reduced: list[torch.Tensor]) -> None:
            if self._own_rank == root:
                for tensor, one in zip(tensors, reduced):
                    checks.fill("reduce: tensor", tensor, one)

        return self._work(name, handle, tensors, finish)

    # --- gathering ---

    def _gather(
        self,
        kind: str,
        what: str,
        tensor: torch.Tensor,
        result: Any,
        outputs: list[torch.Tensor],
    ) -> Any:
        for output in outputs:
            checks.check_type(what, output, tensor)
        name = self._name(kind)
        # As one row, so that all ranks must give as many elements.
        handle = collectives.allgather_async(real_input(tensor.reshape(1, -1)), name, self._set)

        def finish(rows: torch.Tensor) -> None:
            for output, row in zip(outputs, self._order.row_of_each_rank(rows)):
                checks.fill(what, output, row)

        return self._work(name, handle, result, finish)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        outputs, inputs = listed_pair(outputs, inputs)
        what = "all_gather: tensor_list"
        checks.check_length(what, outputs[0], self._own_size)
        return self._gather("allgather", what, inputs[0], outputs, outputs[0])

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *, root: Any = None) -> Any:
        outputs, inputs = listed_pair(outputs, inputs)
        root = root_of(opts if root is None else root)
        what = "gather: gather_list"
        checks.check_rank("gather: dst", root, self._own_size)
        own: list[torch.Tensor] = []
        if self._own_rank == root:
            own = outputs[0]
            checks.check_length(what, own, self._own_size)
        return self._gather("gather", what, inputs[0], outputs, own)

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        what = "all_gather_into_tensor: output_tensor"
        checks.check_type(what, output, given)
        name = self._name("allgather_base")
        handle = collectives.allgather_async(real_input(given.reshape(1, -1)), name, self._set)

        def finish(rows: torch.Tensor) -> None:
            checks.fill(what, output, self._order.row_of_each_rank(rows))

        return self._work(name, handle, output, finish)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        checks.check_length("all_gather_into_tensor: the list of outputs", outputs, len(inputs))
        works = [self._allgather_base(*pair, opts) for pair in zip(outputs, inputs)]
        return self._all_of(works, outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        # One list of the tensors of each rank.
        what = "all_gather_coalesced: output_tensor_lists"
        checks.check_length(what, outputs, self._own_size)
        for of_rank in outputs:
            checks.check_length(f"a list in {what}", of_rank, len(inputs))
        works = [
            self.allgather([[of_rank[index] for of_rank in outputs]], [given], opts)
            for index, given in enumerate(inputs)
        ]
        return self._all_of(works, outputs)

    # --- scattering ---

    def _reduce_scatter(
        self, what: str, output: torch.Tensor, rows: torch.Tensor, opts: Any, result: Any
    ) -> Any:
        checks.check_type(what, output, rows)
        reduction = reduction_of(opts)
        checks.check_reduction(what, reduction, [output])
        name = self._name("reduce_scatter")
        rows = self._order.row_of_each_place(rows)
        handle: Handle[Any]
        if reduction.fold is None:
            handle = collectives.reducescatter_async(
                real_input(rows), reduction.op, name, reduction.prescale, process_set=self._set
            )
        else:
            handle = collectives.alltoall_async(rows, [1] * self._own_size, name, self._set)

        def finish(received: Any) -> None:
            if reduction.fold is not None:
                received = functools.reduce(reduction.fold, received[0])
            checks.fill(what, output, received)

        return self._work(name, handle, result, finish)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *, op: Any = None) -> Any:
        outputs, inputs = listed_pair(outputs, inputs)
        opts = opts if op is None else op
        rows = checks.rows_for_ranks("reduce_scatter: input_list", inputs[0], self._own_size)
        return self._reduce_scatter("reduce_scatter: output", outputs[0], rows, opts, outputs)

    def _reduce_scatter_base(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Any:
        rows = checks.equal_rows("reduce_scatter_tensor: input", given, self._own_size)
        return self._reduce_scatter("reduce_scatter_tensor: output", output, rows, opts, output)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        checks.check_length("reduce_scatter_tensor: the list of outputs", outputs, len(inputs))
        works = [self._reduce_scatter_base(*pair, opts) for pair in zip(outputs, inputs)]
        return self._all_of(works, outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *, root: Any = None) -> Any:
        outputs, inputs = listed_pair(outputs, inputs)
        root = root_of(opts if root is None else root)
        checks.check_rank("scatter: src", root, self._own_size)
        output = outputs[0]
        if self._own_rank == root:
            rows = checks.rows_for_ranks("scatter: scatter_list", inputs[0], self._own_size)
            rows = self._order.row_of_each_place(rows)
            splits = [1] * self._own_size
        else:
            rows = output.new_empty((0, output.numel()))
            splits = [0] * self._own_size
        name = self._name("scatter")
        handle = collectives.alltoall_async(real_input(rows), splits, name, self._set)
        what = "scatter: tensor"
        return self._work(name, handle, outputs, lambda own: checks.fill(what, output, own[0]))

    def _alltoall(
        self, name: str, tensor: torch.Tensor, splits: list[int]
    ) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
        tensor, splits = self._order.chunk_of_each_place(real_input(tensor), splits)
        return collectives.alltoall_async(tensor, splits, name, self._set)

    def _received(
        self, received: tuple[torch.Tensor, torch.Tensor], dtype: torch.dtype
    ) -> tuple[torch.Tensor, list[int]]:
        """The rows that have come from each rank, and how many each rank sent."""
        tensor, lengths = self._order.chunk_of_each_rank(received[0], received[1].tolist())
        return checks.of_type(tensor, dtype), lengths

    def alltoall_base(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> Any:
        what = "all_to_all_single: output"
        checks.check_type(what, output, given)
        splits = checks.splits_of(
            "all_to_all_single: input_split_sizes", input_splits, given, self._own_size
        )
        expected = checks.splits_of(f"{what}_split_sizes", output_splits, output, self._own_size)
        name = self._name("alltoall_base")
        handle = self._alltoall(name, given, splits)

        def finish(received: tuple[torch.Tensor, torch.Tensor]) -> None:
            own, rows = self._received(received, output.dtype)
            sizes = checks.elements_of(expected, output)
            checks.check_received(what, sizes, checks.elements_of(rows, own))
            checks.fill(what, output, own)

        return self._work(name, handle, output, finish)

    all_to_all_single = alltoall_base

    def alltoall(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Any:
        what = "all_to_all: output_tensor_list"
        checks.check_length(what, outputs, self._own_size)
        checks.check_length("all_to_all: input_tensor_list", inputs, self._own_size)
        for output in outputs:
            checks.check_type(what, output, inputs[0])
        flat = torch.cat([one.reshape(-1) for one in inputs])
        splits = [one.numel() for one in inputs]
        name = self._name("alltoall")
        handle = self._alltoall(name, flat, splits)

        def finish(received: tuple[torch.Tensor, torch.Tensor]) -> None:
            sizes = [one.numel() for one in outputs]
            own, lengths = self._received(received, outputs[0].dtype)
            checks.check_received(what, sizes, lengths)
            for output, part in zip(outputs, own.split(sizes)):
                checks.fill(what, output, part)

        return self._work(name, handle, outputs, finish)

    def barrier(self, opts: Any = None) -> Any:
        name = self._name("barrier")
        barrier = start(Kind.BARRIER, None, process_set=self._set, name=name)
        work = self._work(name, Handle(barrier, lambda done: None), [])
        work.limit = seconds_of(getattr(opts, "timeout", None)) or work.limit
        return work
