"""The collectives on tensors, once for all frameworks.

An ``Adapter`` says how hvd reads the tensors of a framework, and makes tensors of its results.
``Collectives`` are the calls on them, whose docstrings programs see: a module takes those that fit
its framework, and has its own where Horovod's have other arguments, or where they can be
differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from . import _core
from ._work import Adasum, Average, Handle, Kind, ReduceOp, Sum, Tensor, choose_op, start
from .basics import ProcessSet, global_process_set

T = TypeVar("T")


class Adapter(Generic[T]):
    """A framework's tensors. Its methods run in the thread that makes a call, or waits for it."""

    # As in Horovod, a tensor of another collective may have the same name.
    names_by_kind = False

    def read(self, given: Any) -> T:
        """Gives the tensor with its elements one after the other, a copy only where they are not.

        Raises TypeError or ValueError of what is no such tensor.
        """
        raise NotImplementedError

    def change(self, given: Any) -> T:
        """As ``read()``, of a tensor that is to be changed in place."""
        raise NotImplementedError

    def changed(self, given: Sequence[Any], changed: Sequence[T]) -> None:
        """The tensors of ``change()`` have their new elements."""

    def on_host(self, tensor: T) -> T:
        """Gives the tensor in the memory of the host."""
        return tensor

    def describe(self, tensor: T) -> Tensor:
        """Describes it to the extension. Raises UnsupportedTypeError of a type that hvd lacks."""
        raise NotImplementedError

    def empty_like(self, tensor: T) -> T:
        """Makes a tensor of the same shape, type and device, with any elements."""
        raise NotImplementedError

    def result(self, work: _core.Work, result: Tensor, like: T) -> T:
        """Makes a tensor in the memory of a result, of the type of ``like``."""
        raise NotImplementedError

    def give(self, result: T) -> Any:
        """What the program gets of a new tensor."""
        return result

    def rows_of(self, splits: Any) -> list[int]:
        """The splits of an alltoall. Raises ValueError if one of them is no whole number."""
        raise NotImplementedError

    def splits(self, rows: list[int], given: Any, like: T) -> Any:
        """Makes a tensor of int32 of the rows that came, where ``given`` was on their way out."""
        raise NotImplementedError

    def stream(self, tensors: Sequence[T]) -> int:
        """The stream in whose order tensors on a GPU are; -1: they are on the host."""
        del tensors
        return -1

    def compression(self, given: Any) -> int:
        """The number of what a program names as the compression of a call."""
        return int(given)

    def goes_on(self, given: Sequence[Any]) -> None:
        """The program goes on while hvd reads and writes the memory of these tensors."""


class ReduceArguments(NamedTuple):
    """The arguments of a call that reduces."""

    name: str | None = None
    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    compression: Any = 0


def reduce_arguments(
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    compression: Any = 0,
) -> ReduceArguments:
    """Checks what a call was given. Raises ValueError: ``op`` and ``average``, or no such op."""
    return ReduceArguments(
        name, choose_op(op, average), prescale_factor, postscale_factor, process_set, compression
    )


def gradient_arguments(
    name: str,
    op: int,
    predivide_factor: float,
    process_set: ProcessSet,
    compression: Any = 0,
    *,
    ops: Sequence[ReduceOp] = (Average, Sum, Adasum),
) -> ReduceArguments:
    """How an optimizer or a tape reduces gradients.

    An average is divided by the factor before the sum, and by the number of ranks over it
    afterwards.

    Raises:
        ValueError: ``op`` is none of ``ops``, or there is a factor for another one than Average.
    """
    if op not in ops:
        *others, last = (one.name.capitalize() for one in ops)
        raise ValueError(f"op is {', '.join(others)} or {last}")
    if predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    return ReduceArguments(
        name, ReduceOp(op), 1.0 / predivide_factor, predivide_factor, process_set, compression
    )


class Collectives(Generic[T]):
    """The calls on the tensors of an adapter.

    Calls with a name must have the same one on all ranks; those without are numbered by their
    order. All raise InvalidArgumentError (a ValueError) if an argument of this rank is wrong,
    DisagreementError if those of the ranks do not fit together, and HorovodInternalError if a
    member is gone.
    """

    def __init__(self, adapter: Adapter[T]) -> None:
        self._adapter = adapter

    # --- how they are started: of one tensor in a list, or of a group of them ---

    def start(
        self,
        kind: Kind,
        inputs: list[T],
        outputs: list[T] | None,
        finish: Callable[[_core.Work], Any],
        *,
        grouped: bool,
        name: str | None,
        **options: Any,
    ) -> Handle[Any]:
        """Starts any collective; ``finish`` gives a list of results, one if it is of no group."""
        adapter = self._adapter
        ins = [adapter.describe(tensor) for tensor in inputs]
        outs = None if outputs is None else [adapter.describe(tensor) for tensor in outputs]
        # What goes from one rank to another has one name at both ends.
        if name is not None and adapter.names_by_kind and kind not in (Kind.SEND, Kind.RECV):
            name = f"{kind.name.lower()}.{name}"
        work = start(
            kind,
            ins if grouped else ins[0],
            outs if grouped or outs is None else outs[0],
            name=name,
            keep=(inputs, outputs),
            stream=adapter.stream(inputs),
            **options,
        )
        return Handle(work, finish if grouped else lambda done: finish(done)[0])

    def _start_to_new(
        self, kind: Kind, given: Sequence[Any], *, grouped: bool = False, **options: Any
    ) -> Handle[Any]:
        """The results are as large as the tensors."""
        inputs = [self._adapter.read(one) for one in given]
        outputs = [self._adapter.empty_like(one) for one in inputs]
        return self.start(
            kind,
            inputs,
            outputs,
            lambda done: [self._adapter.give(one) for one in outputs],
            grouped=grouped,
            **options,
        )

    def _start_in_place(
        self,
        kind: Kind,
        given: Sequence[Any],
        *,
        grouped: bool = False,
        on_host: bool = False,
        **options: Any,
    ) -> Handle[Any]:
        adapter = self._adapter
        kept = list(given)
        tensors = [adapter.change(one) for one in kept]
        if on_host:
            tensors = [adapter.on_host(one) for one in tensors]

        def finish(done: _core.Work) -> list[Any]:
            del done
            adapter.changed(kept, tensors)
            return kept

        return self.start(kind, tensors, None, finish, grouped=grouped, **options)

    def _start_to_results(
        self, kind: Kind, given: Sequence[Any], *, grouped: bool = False, **options: Any
    ) -> Handle[Any]:
        """How large the results are is known when the ranks have agreed."""
        inputs = [self._adapter.read(one) for one in given]

        def finish(done: _core.Work) -> list[T]:
            pairs = zip(done.results(), inputs)
            results = [self._adapter.result(done, result, like) for result, like in pairs]
            return [self._adapter.give(one) for one in results]

        return self.start(kind, inputs, None, finish, grouped=grouped, **options)

    def _options(self, call: ReduceArguments) -> dict[str, Any]:
        return {
            "name": call.name,
            "op": call.op,
            "prescale": call.prescale,
            "postscale": call.postscale,
            "compression": self._adapter.compression(call.compression),
            "process_set": call.process_set,
        }

    def start_allreduce(
        self, given: Sequence[Any], call: ReduceArguments, *, grouped: bool
    ) -> Handle[Any]:
        """Starts ``allreduce()``, or ``grouped_allreduce()``."""
        return self._start_to_new(Kind.ALLREDUCE, given, grouped=grouped, **self._options(call))

    def start_allreduce_in_place(
        self, given: Sequence[Any], call: ReduceArguments, *, grouped: bool
    ) -> Handle[Any]:
        """Starts ``allreduce_()``, or ``grouped_allreduce_()``."""
        return self._start_in_place(Kind.ALLREDUCE, given, grouped=grouped, **self._options(call))

    def start_reducescatter(
        self, given: Sequence[Any], call: ReduceArguments, *, grouped: bool
    ) -> Handle[Any]:
        """Starts ``reducescatter()``, or ``grouped_reducescatter()``."""
        return self._start_to_results(
            Kind.REDUCESCATTER, given, grouped=grouped, **self._options(call)
        )

    def start_alltoall(
        self,
        given: Any,
        splits: Any,
        name: str | None,
        process_set: ProcessSet,
        *,
        with_rows: bool,
    ) -> Handle[Any]:
        """Starts ``alltoall()``, which gives also the rows that came, or only the tensor."""
        adapter = self._adapter
        tensor = adapter.read(given)

        def finish(done: _core.Work) -> list[Any]:
            output = adapter.give(adapter.result(done, done.results()[0], tensor))
            if not with_rows:
                return [output]
            received = adapter.splits(done.received_splits(), splits, tensor)
            return [(output, adapter.give(received))]

        return self.start(
            Kind.ALLTOALL,
            [tensor],
            None,
            finish,
            grouped=False,
            name=name,
            splits=None if splits is None else adapter.rows_of(splits),
            process_set=process_set,
        )

    # --- allreduce ---

    def allreduce(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> T:
        """Reduces a tensor element by element over all ranks, and gives every rank the result.

        Args:
            tensor: of the same shape and type on all ranks.
            average: the older form of ``op``: True for Average, False for Sum.
            name: the same on all ranks; None: numbered by the order of the calls.
            op: Average (the default), Sum, Adasum, Min, Max or Product.
            prescale_factor, postscale_factor: elements are multiplied by them before and after.
            process_set: the ranks that take part.
            compression: Compression.none, .fp16 or .bf16: the type in which elements travel.

        Returns:
            A new tensor of the same shape and type.

        Raises:
            InvalidArgumentError: an argument of this rank is wrong.
            DisagreementError: those of the ranks do not fit together.
            HorovodInternalError: a member is gone.
        """
        return self.allreduce_async(
            tensor, average, name, op, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def allreduce_async(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[T]:
        """Starts ``allreduce()``. Not differentiable."""
        call = reduce_arguments(
            average, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        return self.going_on([tensor], self.start_allreduce([tensor], call, grouped=False))

    def allreduce_(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Any:
        """``allreduce()`` in place. Gives the same tensor."""
        return self.allreduce_async_(
            tensor, average, name, op, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def allreduce_async_(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[Any]:
        """Starts ``allreduce_()``."""
        call = reduce_arguments(
            average, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        started = self.start_allreduce_in_place([tensor], call, grouped=False)
        return self.going_on([tensor], started)

    def grouped_allreduce(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> list[T]:
        """``allreduce()`` of several tensors, which are reduced together, when all are there."""
        return self.grouped_allreduce_async(
            tensors, average, name, op, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def grouped_allreduce_async(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[list[T]]:
        """Starts ``grouped_allreduce()``. Not differentiable."""
        call = reduce_arguments(
            average, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        return self.going_on(tensors, self.start_allreduce(tensors, call, grouped=True))

    def grouped_allreduce_(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> list[Any]:
        """``grouped_allreduce()`` in place."""
        return self.grouped_allreduce_async_(
            tensors, average, name, op, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[list[Any]]:
        """Starts ``grouped_allreduce_()``."""
        call = reduce_arguments(
            average, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        return self.going_on(tensors, self.start_allreduce_in_place(tensors, call, grouped=True))

    # --- allgather ---

    def allgather(
        self,
        tensor: Any,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Puts the tensors of all ranks together along their first dimension, in their order.

        The first dimension may differ from rank to rank; the others may not.
        """
        return self.allgather_async(tensor, name, process_set).wait()

    def allgather_async(
        self,
        tensor: Any,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[T]:
        """Starts ``allgather()``. Not differentiable."""
        started = self._start_to_results(
            Kind.ALLGATHER, [tensor], name=name, process_set=process_set
        )
        return self.going_on([tensor], started)

    def grouped_allgather(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """``allgather()`` of several tensors together."""
        return self.grouped_allgather_async(tensors, name, process_set).wait()

    def grouped_allgather_async(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[list[T]]:
        """Starts ``grouped_allgather()``. Not differentiable."""
        started = self._start_to_results(
            Kind.ALLGATHER, tensors, grouped=True, name=name, process_set=process_set
        )
        return self.going_on(tensors, started)

    # --- broadcast ---

    def broadcast(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> T:
        """Gives every rank the root's tensor, as a new tensor.

        Args:
            tensor: of the same shape and type on all ranks.
            root_rank: a rank of the world, also with a process set.
        """
        return self.broadcast_async(tensor, root_rank, name, process_set).wait()

    def broadcast_async(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[T]:
        """Starts ``broadcast()``. Not differentiable."""
        started = self._start_to_new(
            Kind.BROADCAST, [tensor], name=name, root=root_rank, process_set=process_set
        )
        return self.going_on([tensor], started)

    def broadcast_(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """``broadcast()`` in place."""
        return self.broadcast_async_(tensor, root_rank, name, process_set).wait()

    def broadcast_async_(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[Any]:
        """Starts ``broadcast_()``."""
        started = self._start_in_place(
            Kind.BROADCAST, [tensor], name=name, root=root_rank, process_set=process_set
        )
        return self.going_on([tensor], started)

    def broadcast_list(
        self,
        tensors: Sequence[Any],
        root_rank: int,
        name: str,
        process_set: ProcessSet = global_process_set,
    ) -> list[T]:
        """``broadcast()`` of several tensors at once, called ``name.0`` and so on."""
        handles = [
            self.broadcast_async(tensor, root_rank, f"{name}.{index}", process_set)
            for index, tensor in enumerate(tensors)
        ]
        return [handle.wait() for handle in handles]

    # --- alltoall ---

    def alltoall(
        self,
        tensor: Any,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Sends each rank some rows of this rank's tensor.

        Args:
            tensor: its rows go to the ranks in their order.
            splits: how many rows go to each rank; None: equally many.

        Returns:
            What this rank has got, in the order of the senders; with ``splits`` also how many rows
            came from each, as int32.

        Raises:
            InvalidArgumentError: the splits do not fit the tensor or the ranks.
        """
        return self.alltoall_async(tensor, splits, name, process_set).wait()

    def alltoall_async(
        self,
        tensor: Any,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Handle[Any]:
        """Starts ``alltoall()``. Not differentiable."""
        with_rows = splits is not None
        started = self.start_alltoall(tensor, splits, name, process_set, with_rows=with_rows)
        return self.going_on([tensor], started)

    # --- reducescatter ---

    def reducescatter(
        self,
        tensor: Any,
        op: int = Average,
        name: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> T:
        """Reduces as ``allreduce()`` does, and gives each rank its share of the rows.

        If the rows cannot be shared out evenly, the first ranks have one more. Ranks that have
        called ``join()`` count here, too: the rows that would be theirs are lost.
        """
        return self.reducescatter_async(
            tensor, op, name, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def reducescatter_async(
        self,
        tensor: Any,
        op: int = Average,
        name: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[T]:
        """Starts ``reducescatter()``. Not differentiable."""
        call = reduce_arguments(
            None, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        return self.going_on([tensor], self.start_reducescatter([tensor], call, grouped=False))

    def grouped_reducescatter(
        self,
        tensors: Sequence[Any],
        op: int = Average,
        name: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> list[T]:
        """``reducescatter()`` of several tensors together."""
        return self.grouped_reducescatter_async(
            tensors, op, name, prescale_factor, postscale_factor, process_set, compression
        ).wait()

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[Any],
        op: int = Average,
        name: str | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        compression: Any = 0,
    ) -> Handle[list[T]]:
        """Starts ``grouped_reducescatter()``. Not differentiable."""
        call = reduce_arguments(
            None, name, op, prescale_factor, postscale_factor, process_set, compression
        )
        return self.going_on(tensors, self.start_reducescatter(tensors, call, grouped=True))

    # --- send and recv ---

    def send(self, tensor: Any, dst: int, name: str | None = None) -> None:
        """Sends a tensor to another rank, which calls ``recv()``; the other ranks go on.

        Args:
            tensor: of the same shape and type as the receiver's. One on a GPU travels by way of
                the host's memory.
            dst: a rank of the world.
            name: the same at both ends; None: the order of the two ranks' calls counts.
        """
        self.send_async(tensor, dst, name).wait()

    def send_async(self, tensor: Any, dst: int, name: str | None = None) -> Handle[None]:
        """Starts ``send()``."""
        sent = self._adapter.on_host(self._adapter.read(tensor))
        started = self.start(
            Kind.SEND,
            [sent],
            None,
            lambda done: [None],
            grouped=False,
            name=name,
            root=dst,
            process_set=global_process_set,
        )
        return self.going_on([tensor], started)

    def recv(self, tensor: Any, src: int, name: str | None = None) -> Any:
        """Fills ``tensor`` with what rank ``src`` sends, and gives it."""
        return self.recv_async(tensor, src, name).wait()

    def recv_async(self, tensor: Any, src: int, name: str | None = None) -> Handle[Any]:
        """Starts ``recv()``."""
        started = self._start_in_place(
            Kind.RECV, [tensor], on_host=True, name=name, root=src, process_set=global_process_set
        )
        return self.going_on([tensor], started)

    def going_on(self, given: Sequence[Any], started: Handle[Any]) -> Handle[Any]:
        """Gives the handle of what was started to a program, which goes on."""
        self._adapter.goes_on(given)
        return started
