"""MXNet's optimizers and Gluon's trainers, with the gradients of all workers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import mxnet as mx

from hvd._collectives import ReduceArguments, gradient_arguments
from hvd._work import Average
from hvd.basics import ProcessSet, global_process_set
from hvd.compression import compressed

from .compression import Compression
from .ops import collectives


def broadcast_parameters(
    params: Any,
    root_rank: int = 0,
    prefix: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the root's parameters, in place.

    Parameters that Gluon initialises later, when it has seen their input, follow then.

    Args:
        params: what ``net.collect_params()`` gives, or a dict of NDArrays.
        root_rank: a rank of the world, also with a process set.
        prefix: of the parameters' names, for two models of one program.

    Raises:
        ValueError: it is neither.
    """
    if not hasattr(params, "items"):
        raise ValueError(f"a dict of parameters is needed, not {type(params).__name__}")
    handles = []
    for name, value in sorted(params.items()):
        name = f"{prefix or ''}parameter.{name}"
        if isinstance(value, mx.nd.NDArray):
            handles.append(collectives.broadcast_async_(value, root_rank, name, process_set))
        elif value._data is not None:
            handles.append(collectives.broadcast_async_(value.data(), root_rank, name, process_set))
        else:
            _broadcast_later(value, root_rank, name, process_set)
    for handle in handles:
        handle.wait()


def _broadcast_later(parameter: Any, root_rank: int, name: str, process_set: ProcessSet) -> None:
    initialise = parameter._init_impl

    def initialise_and_broadcast(*args: Any, **kwargs: Any) -> None:
        initialise(*args, **kwargs)
        collectives.broadcast_(parameter.data(), root_rank, name, process_set)

    parameter._init_impl = initialise_and_broadcast


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """An optimizer whose gradients are the average over all ranks.

    For ``Module`` and programs that call ``update()``; Gluon's have ``DistributedTrainer``.

    Args:
        optimizer: a mx.optimizer.Optimizer.
        gradient_predivide_factor: gradients are divided by it before the sum, and by the number of
            workers over it afterwards.
        num_groups: gradients that come together are reduced in that many groups; 0: as one.
        process_set: the ranks that train this model; the others take their own gradients.
    """

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            raise ValueError("this optimizer is distributed already")
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise TypeError(f"an optimizer of MXNet is needed, not {type(optimizer).__name__}")
        self._optimizer = optimizer
        self._hvd_call = gradient_arguments(
            "optimizer", Average, gradient_predivide_factor, process_set, Compression.none
        )
        self._hvd_groups = num_groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def _reduce(self, index: Any, gradients: Any) -> None:
        indices = list(index) if isinstance(index, (list, tuple)) else [index]
        arrays = list(gradients) if isinstance(gradients, (list, tuple)) else [gradients]
        call = self._hvd_call._replace(name=f"optimizer.{indices[0]}")
        _reduce(arrays, call, self._hvd_groups)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduces the gradient, and changes the weight with it."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As ``update()``, of weights with a copy in float32."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        """Makes the state of a weight, as the optimizer does."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Makes it with a copy in float32."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Sets factors of the learning rate, by parameter."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Sets factors of the weight decay, by parameter."""
        self._optimizer.set_wd_mult(args_wd_mult)


def _reduce(arrays: list[Any], call: ReduceArguments, groups: int) -> None:
    """Reduces gradients in place, where this rank is a member of the set."""
    if not arrays or not call.process_set.included():
        return

    def reduce(given: list[Any], compression: int) -> list[Any]:
        size = -(-len(given) // (groups or 1))
        handles = [
            collectives.start_allreduce_in_place(
                given[first : first + size],
                call._replace(name=f"{call.name}.{first}", compression=compression),
                grouped=True,
            )
            for first in range(0, len(given), size)
        ]
        return [one for handle in handles for one in handle.wait()]

    for array, result in zip(arrays, compressed(call.compression, arrays, reduce)):
        if result is not array:
            array[:] = result


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """Gluon's trainer, whose gradients are the average over all ranks, reduced as one group.

    Args:
        params: what ``net.collect_params()`` gives, the same on all ranks.
        optimizer, optimizer_params: as ``mx.gluon.Trainer`` takes them.
        compression: Compression.none, .fp16, .bf16, or a Compressor of your own.
        gradient_predivide_factor: as ``DistributedOptimizer`` takes it.
        prefix: of the gradients' names, for two trainers of one program.
        num_groups: gradients are reduced in that many groups; 0: as one.
        process_set: the ranks that train this model; the others take their own gradients.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "a DistributedTrainer reduces by itself: it takes the optimizer alone", stacklevel=2
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        name = f"{prefix or ''}gradients"
        self._hvd_call = gradient_arguments(
            name, Average, gradient_predivide_factor, process_set, compression
        )
        self._hvd_groups = num_groups

    def _allreduce_grads(self) -> None:
        gradients = [
            gradient
            for parameter in self._params
            if parameter.grad_req != "null"
            for gradient in parameter.list_grad()
        ]
        _reduce(gradients, self._hvd_call, self._hvd_groups)
