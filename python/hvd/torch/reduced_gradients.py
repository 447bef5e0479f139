"""An optimizer's gradients, reduced while a backward pass goes on."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hvd import _core, basics
from hvd._work import HOST
from hvd.basics import ProcessSet, number_of

from .agreement import agree_on_name, generation_agreed
from .allreduce_ops import grouped_allreduce
from .compression import Compressor, built_in_of
from .loaded_state import load_state_in_place
from .tensors import result_tensor, stream_of, tensor_tuple


def _on_gradient(parameter: torch.nn.Parameter, function: Any) -> Any:
    """Calls ``function(parameter)`` when a backward pass has added to its gradient.

    Gives what must be kept for that.
    """
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(function)
    # The node that adds to the gradient, found by way of a view (before torch 2.1).
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    node.register_hook(lambda *_: function(parameter))
    return node


class ReducedGradients:
    """The part of a DistributedOptimizer that makes gradients those of all ranks."""

    def _distribute(
        self,
        named: dict[torch.nn.Parameter, str],
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: int,
        gradient_predivide_factor: float,
        groups: list[list[str]],
        number_of_groups: int,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self._compression = compression
        self._passes = backward_passes_per_step
        self._op = op
        self._predivide = gradient_predivide_factor
        self._groups = groups
        self._number_of_groups = number_of_groups
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._reduced_parameters: list[torch.nn.Parameter] = []
        self._names: list[str] = []
        self._index: dict[torch.nn.Parameter, int] = {}
        self._frozen: dict[torch.nn.Parameter, str] = {}  # that have asked for no gradient so far
        self._done_passes: list[int] = []
        self._passes_of = -1  # the generation of the world in which they were counted
        self._hooks: list[Any] = []
        self._reducer: _core.Reducer | None = None
        self._generation = -1
        self._sparse: set[int] = set()
        self._sparse_in_step: set[int] = set()  # that are reduced as dense ones
        self._agreed_in = -1  # the generation in which the ranks agreed on these, and on the name
        self._addresses: list[int] = []
        self._synchronized = False
        self._should_synchronize = True
        self._reducer_name = ""
        self._add(named)

    def _add(self, named: dict[torch.nn.Parameter, str]) -> None:
        me = weakref.ref(self)

        def hook(parameter: torch.nn.Parameter) -> None:
            owner = me()
            if owner is not None:
                owner._take(parameter)

        for parameter, name in named.items():
            if not parameter.requires_grad:
                self._frozen[parameter] = name
                continue
            self._index[parameter] = len(self._names)
            self._reduced_parameters.append(parameter)
            self._names.append(name)
            self._done_passes.append(0)
            self._hooks.append(_on_gradient(parameter, hook))

    def _takes_part(self) -> bool:
        return basics.is_initialized() and self._process_set.included()

    def _forget_other_worlds(self) -> None:
        """Backward passes of a world that has failed do not count."""
        if basics.is_initialized() and self._passes_of != basics.generation():
            self._passes_of = basics.generation()
            self._done_passes = [0] * len(self._names)
            self._synchronized = False

    def _is_in_step(self) -> bool:
        """Whether a backward pass of this world has counted."""
        self._forget_other_worlds()
        return any(self._done_passes)

    @property
    def _parameter_names(self) -> dict[torch.nn.Parameter, str]:
        """Of Horovod, where programs read it."""
        return dict(zip(self._reduced_parameters, self._names))

    # --- during a backward pass ---

    def _take(self, parameter: torch.nn.Parameter) -> None:
        index = self._index[parameter]
        if not self._takes_part():
            return
        self._forget_other_worlds()
        if self._done_passes[index] >= self._passes:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._synchronized = False
        self._done_passes[index] += 1
        if self._reducer is not None and self._generation == basics.generation():
            self._send(index)

    def _send(self, index: int) -> None:
        """Tells the reducer of one more pass."""
        assert self._reducer is not None
        parameter = self._reduced_parameters[index]
        if index in self._sparse:
            self._send_sparse(index)
            return
        gradient = self._dense_gradient(parameter)
        address = gradient.data_ptr()
        if address != self._addresses[index]:
            self._reducer.rebind(index, address)
            self._addresses[index] = address
        self._reducer.ready(index, stream_of(gradient))

    def _dense_gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        elif gradient.is_sparse:
            gradient = gradient.to_dense()
        gradient = gradient.detach() if gradient.requires_grad else gradient
        if not gradient.is_contiguous():
            gradient = gradient.contiguous()
        if gradient is not parameter.grad:
            parameter.grad = gradient
        return gradient

    def _send_sparse(self, index: int) -> None:
        assert self._reducer is not None
        parameter = self._reduced_parameters[index]
        gradient = parameter.grad
        rows = torch.empty(0, dtype=torch.int64)
        values = torch.empty((0, *parameter.shape[1:]), dtype=parameter.dtype)
        # The gradient holds all passes so far, which the last one sends.
        if gradient is not None and self._done_passes[index] == self._passes:
            sparse = (gradient if gradient.is_sparse else gradient.to_sparse(1)).coalesce()
            rows, values = (
                sparse.indices()[0].cpu().contiguous(),
                sparse.values().cpu().contiguous(),
            )
        self._reducer.ready_sparse(index, tensor_tuple(rows), tensor_tuple(values))

    # --- the reducer ---

    def _agree_on_sparse_and_name(self) -> None:
        """Tells all ranks which gradients are sparse, and agrees on the reducer's name.

        A rank may have no gradient of a parameter in this step.
        """
        own = [
            name
            for name, parameter in zip(self._names, self._reduced_parameters)
            if parameter.grad is not None and parameter.grad.is_sparse
        ]
        self._reducer_name, told = agree_on_name(self, self._names, self._process_set, own)
        self._agreed_in = generation_agreed(told, self._process_set)
        sparse: set[str] = set().union(*told)
        indices = {index for index, name in enumerate(self._names) if name in sparse}
        as_dense = self._sparse_as_dense or built_in_of(self._compression) is None
        self._sparse = set() if as_dense else indices
        self._sparse_in_step = indices if as_dense else set()

    def _build(self) -> None:
        """A reducer for this world."""
        self._agree_on_sparse_and_name()
        self._reducer = _core.Reducer(
            self._reducer_name,
            self._op,
            built_in_of(self._compression) or 0,
            self._predivide,
            number_of(self._process_set),
            self._passes,
            False,
            self._number_of_groups,
            self._groups,
        )
        self._addresses = []
        for index, (name, parameter) in enumerate(zip(self._names, self._reduced_parameters)):
            if index in self._sparse:
                address = 0  # a sparse gradient has no memory of its own
                _, shape, number, _ = tensor_tuple(parameter.detach())
                self._reducer.add(name, (address, shape, number, HOST), True)
            else:
                gradient = self._dense_gradient(parameter)
                address = gradient.data_ptr()
                self._reducer.add(name, tensor_tuple(gradient), False)
            self._addresses.append(address)
        self._generation = self._agreed_in

    def _reduce(self) -> None:
        if self._reducer is None or self._generation != basics.generation():
            self._build()
            told = [0] * len(self._names)
        else:
            told = list(self._done_passes)
        assert self._reducer is not None
        for index in range(len(self._names)):
            # A parameter that no pass of this rank has used takes part with what it has.
            for step in range(told[index], self._passes):
                self._done_passes[index] = step + 1
                self._send(index)
        self._reducer.synchronize()
        for index in self._sparse:
            parameter = self._reduced_parameters[index]
            rows, values = self._reducer.reduced(index)
            like = torch.empty(0, dtype=torch.int64)
            parameter.grad = torch.sparse_coo_tensor(
                result_tensor(self._reducer, rows, like).clone().unsqueeze(0),
                result_tensor(self._reducer, values, parameter.detach().cpu()).clone(),
                parameter.shape,
            ).to(parameter.device)

    def _reduce_at_once(self, parameters: Sequence[torch.nn.Parameter], name: str) -> None:
        gradients = [self._dense_gradient(one) for one in parameters]
        pairs = [self._compression.compress(one) for one in gradients]
        factor = self._predivide
        reduced = grouped_allreduce(
            [small for small, _ in pairs],
            name=name,
            op=self._op,
            prescale_factor=1 / factor,
            postscale_factor=factor,
            process_set=self._process_set,
        )
        for gradient, one, (_, context) in zip(gradients, reduced, pairs):
            gradient.copy_(self._compression.decompress(one, context))

    def _reduce_with_own_compression(self) -> None:
        if self._agreed_in != basics.generation():
            self._agree_on_sparse_and_name()
        self._reduce_at_once(self._reduced_parameters, self._reducer_name)

    def _unfrozen(self) -> dict[torch.nn.Parameter, str]:
        return {one: name for one, name in self._frozen.items() if one.requires_grad}

    def _reduce_unfrozen(self) -> None:
        """Reduces the gradients of parameters that were frozen in the steps before.

        From the next step on they travel as all others do.
        """
        unfrozen = self._unfrozen()
        if not unfrozen:
            return
        if self._agreed_in != basics.generation():
            self._agree_on_sparse_and_name()
        self._reduce_at_once(list(unfrozen), f"{self._reducer_name}.unfrozen")
        for parameter in unfrozen:
            del self._frozen[parameter]
        self._add(unfrozen)
        self._reducer = None
        self._agreed_in = -1

    # --- what users call ---

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own, between two steps; by all ranks, whose gradients are reduced."""
        if self._is_in_step():
            raise ValueError("add_param_group() must come between two steps")
        super().add_param_group(param_group)  # type: ignore[misc]
        groups = self.param_groups  # type: ignore[attr-defined]
        group = len(groups) - 1
        self._add(
            {
                parameter: f"allreduce.noname.{group}.{index}"
                for index, parameter in enumerate(groups[-1]["params"])
            }
        )
        self._reducer = None
        self._agreed_in = -1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """So many backward passes add up before gradients are reduced; the same on all ranks."""
        if self._is_in_step():
            raise ValueError("set_backward_passes_per_step() must come between two steps")
        self._passes = passes
        if self._reducer is not None:
            self._reducer.set_backward_passes_per_step(passes)

    def synchronize(self) -> None:
        """Blocks until all gradients are those of all ranks, for example to clip them.

        ``with optimizer.skip_synchronize(): optimizer.step()`` comes after it.
        """
        if self._takes_part() and (self._reduced_parameters or self._unfrozen()):
            self._forget_other_worlds()
            try:
                if not self._reduced_parameters:
                    pass  # all were frozen
                elif built_in_of(self._compression) is None:
                    self._reduce_with_own_compression()
                else:
                    self._reduce()
                self._reduce_unfrozen()
            except BaseException:
                self._reducer = None
                raise
            finally:
                self._done_passes = [0] * len(self._names)
        for index in self._sparse_in_step:
            gradient = self._reduced_parameters[index].grad
            if gradient is not None and not gradient.is_sparse:
                self._reduced_parameters[index].grad = gradient.to_sparse(1)
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it ``step()`` does not synchronize, since ``synchronize()`` was called."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """One step with the gradients of all ranks."""
        if closure is not None:

            def reduced_closure() -> Any:
                loss = closure()
                if self._should_synchronize:
                    self.synchronize()
                return loss

            result = super().step(reduced_closure)  # type: ignore[misc]
            self._synchronized = False
            return result
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to "
                    "consider using optimizer.skip_synchronize() context if you use "
                    "optimizer.synchronize() in your code.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return super().step()  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own. Not between a backward pass and the step."""
        if self._is_in_step():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition."
            )
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer's own. Backward passes before it do not count."""
        load_state_in_place(self, super().load_state_dict, state_dict)  # type: ignore[misc]
        if self._is_in_step() and self._reducer is not None:
            self._reducer.reset()
        self._done_passes = [0] * len(self._names)
        self._synchronized = False
        self._should_synchronize = True
