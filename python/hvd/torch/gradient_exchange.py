"""Gradients that are made those of all ranks while backward passes go on."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import torch

from hvd import _core, basics
from hvd._work import HOST, Average, Sum
from hvd.basics import number_of
from hvd.errors import disagreements

from .agreement import Agreement, generation_agreed
from .allreduce_ops import allreduce
from .backward_pass import BackwardPass, run_together
from .compression import built_in_of
from .gradient_step import Left, Round, Settings, Step, World
from .parameter_hooks import ParameterHooks
from .tensors import TYPES, result_tensor, stream_of, tensor_tuple

_SLICE_MS = 50  # for which a thread waits without looking for signals
_numbers = itertools.count()


class GradientExchange:
    """Makes the gradients of parameters those of all ranks.

    A backward pass sends them as they come, and returns when they are reduced. So nobody finds one
    that is in flight, but after an exception that cut a pass off: the step is finished then before
    anything else happens to it. Until then the reducer keeps the memory.

    For one thread at a time, which may be one of autograd's.
    """

    def __init__(self, settings: Settings, passes: int) -> None:
        self.number = next(_numbers)
        self.settings = settings
        self.passes = passes  # of a step
        self.passes_made = 0  # since it was made
        self._hooks = ParameterHooks(self)
        self.names: list[str] = []
        self.is_reduced = False  # nothing has come since
        self._holds_reduced = False  # nor has a step used it, or anybody thrown it away
        self._left: list[Left] = []  # by the last reduction
        self._pass: weakref.ref[BackwardPass] | None = None
        self._step = Step()
        self._step_of = -1  # the generation of its world
        self._world: World | None = None
        self._agreement: Agreement | None = None  # that is under way
        self._sends_early = False  # in the pass that is under way
        self._untold = -1  # the gradient of this pass of which no hook tells that it has come

    def add(self, named: dict[torch.nn.Parameter, str]) -> None:
        """Parameters more, the same on all ranks, between two steps."""
        for parameter, name in named.items():
            self._hooks.add(parameter)
            self.names.append(name)
            self._left.append(Left(None))
        self._world = None

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Those that were added, in their order."""
        return self._hooks.parameters

    # --- hooks ---

    def before_accumulation(self, index: int) -> None:
        """autograd is about to add to the gradient: not to one in flight, nor to an old sum."""
        if not self._owns(index) or not self._enter_pass(index):
            return
        parameter, step = self.parameters[index], self._step
        if index in step.round.sent:
            parameter.grad = None
        elif (old := self._old_part_of_a_sum(index)) is not None:
            step.before[index] = old
            parameter.grad = None
        if index == self._untold:
            self._untold = -1
            self._note(index)

    def _old_part_of_a_sum(self, index: int) -> torch.Tensor | None:
        """The gradient, if it is a sum of all ranks already, which must not be added up again.

        An average with such a part stays right: it is the same on all ranks.
        """
        gradient = self.parameters[index].grad
        if self.settings.op != Sum or gradient is None or index in self._step.come:
            return None
        is_old = self._holds_reduced or self._left[index].is_still(gradient)
        return gradient if is_old else None

    def after_accumulation(self, index: int) -> None:
        """autograd has added to the gradient."""
        if not self._owns(index) or not self._enter_pass(index):
            return
        if self.parameters[index].grad is None:
            return  # a hook of the program has used it up
        if index in self._step.round.sent:
            self._add_more(index)
            return
        self._note(index)
        if self._sends_early:
            self._send(index, self._gradient(index))

    def _note(self, index: int) -> None:
        """A gradient has come."""
        self._step.is_in_pass = True
        self._step.come.add(index)
        self.is_reduced = False

    def _add_more(self, index: int) -> None:
        parameter, more = self.parameters[index], self._step.more
        gradient = parameter.grad
        self._step.is_in_pass = True
        assert gradient is not None
        more[index] = more[index] + gradient if index in more else gradient.detach()
        parameter.grad = self._step.round.sent[index][0]

    def _enter_pass(self, index: int) -> bool:
        """Notes that a backward pass is under way. False: it is none of hvd's."""
        current = self._pass and self._pass()
        if current and current.runs():
            return True
        if not self._takes_part():
            return False
        self._finish_what_was_cut_off()
        self._pass = weakref.ref(BackwardPass.enter(self))
        # In the first step of a world, nothing travels before its end.
        world, step = self._world, self._step
        is_last = step.passes == self.passes - 1
        self._sends_early = is_last and world is not None and world.generation == self._step_of
        self._untold = -1 if self._hooks.begin_pass() else index
        return True

    def _takes_part(self) -> bool:
        """Whether this rank reduces gradients at all, in this world."""
        if not basics.is_initialized() or not self.settings.process_set.included():
            return False
        if self._step_of != basics.generation():
            # Backward passes of a world that has failed do not count.
            self._step_of = basics.generation()
            self._step = Step()
            self._world = self._agreement = None
            self.is_reduced = self._holds_reduced = False
        return True

    def _owns(self, index: int) -> bool:
        return self._hooks.owner(index) is self

    # --- the end of a pass and of a step ---

    def finish(self) -> Iterator[None]:
        """For the end of a backward pass: reduces, if it was the last one of the step."""
        step = self._step
        self._hooks.end_pass()
        for index, (gradient, _, _) in step.round.sent.items():
            if self.parameters[index].grad is None:
                self.parameters[index].grad = gradient
        if not step.is_in_pass:
            self._put_back(step)
            return
        step.is_in_pass = False
        step.passes += 1
        self.passes_made += 1
        if step.passes >= self.passes:
            yield from self._reduce()

    def _put_back(self, step: Step) -> None:
        for index, gradient in step.before.items():
            if index not in step.come and self.parameters[index].grad is None:
                self.parameters[index].grad = gradient
        step.before = {index: one for index, one in step.before.items() if index in step.come}

    def is_in_step(self) -> bool:
        """Whether a backward pass of this world has left something that is not reduced."""
        return self._takes_part() and bool(self._step.come)

    def synchronize(self) -> None:
        """Blocks until all gradients are reduced; those that a pass has reduced, are."""
        if not self._takes_part():
            return
        # The owners of parameters that this one shares with others.
        parts = {self._hooks.owner(index) for index in self._hooks.shared()} | {self}
        turns = [one for one in parts if one._takes_part() and not one._is_still_reduced()]
        with torch.no_grad():
            run_together(one._reduce() for one in sorted(turns, key=lambda one: one.number))

    def _is_still_reduced(self) -> bool:
        """Whether what was reduced is there: a program may have thrown all of it away."""
        if not self.is_reduced or not any(one.was_there for one in self._left):
            return self.is_reduced
        return any(one.grad is not None for one in self.parameters)

    def note_step(self) -> None:
        """A step has used the gradients."""
        self.is_reduced = self._holds_reduced = False

    def forget_step(self) -> None:
        """Gives up what passes have left. What is in flight is waited for."""
        if self._takes_part():
            self._finish_what_was_cut_off()
        self._step = Step()
        self.note_step()

    def _finish_what_was_cut_off(self) -> None:
        step = self._step
        if not step.round.sent and not step.round.told:
            if step.is_in_pass:
                self._step = Step()
            return
        step.was_cut_off = True
        with torch.no_grad():
            run_together([self._reduce()])

    def _reduce(self) -> Iterator[None]:
        """Ends the step: what passes have left becomes that of all ranks."""
        if not any(self._owns(index) for index in range(len(self.parameters))):
            self.is_reduced = True
            return
        try:
            world = self._world
            if world is None or world.generation != self._step_of:
                self._world = world = yield from self._agree()
            step = self._step
            while True:
                with disagreements():
                    yield from self._go_round(world)
                if not world.reducer.present(world.second_round):
                    break
                step.round = Round(is_second=True)
        except Exception:
            self._world = self._agreement = None
            self._step = Step()
            raise
        if not step.was_cut_off:
            for index, old in step.before.items():
                self._add(index, old)
            self._make_sparse(world.made_dense)
        self._left = [Left(parameter.grad) for parameter in self.parameters]
        self._step = Step()
        self.is_reduced = self._holds_reduced = True

    def _agree(self) -> Generator[None, None, World]:
        """Makes the reducer of this world. Tells all ranks which gradients are sparse.

        A rank may have no gradient of a parameter in this step.
        """
        settings = self.settings
        if self._agreement is None:
            own = [
                name
                for name, parameter in zip(self.names, self.parameters)
                if parameter.grad is not None and parameter.grad.is_sparse
            ]
            self._agreement = Agreement(self, self.names, settings.process_set, own)
        while not self._agreement.is_there(_SLICE_MS / 1000):
            yield
        name, told = self._agreement.result()
        self._agreement = None
        named_sparse: set[str] = set().union(*told)
        sparse = {index for index, one in enumerate(self.names) if one in named_sparse}
        built_in = built_in_of(settings.compression)
        as_rows = set() if settings.sparse_as_dense or built_in is None else sparse
        reducer = _core.Reducer(
            name,
            settings.op,
            built_in or 0,
            settings.predivide,
            number_of(settings.process_set),
            1,
            False,
            0,
            settings.groups or self._numbered_groups(as_rows),
            settings.shards,
        )
        for index, parameter in enumerate(self.parameters):
            _, shape, number, device = tensor_tuple(parameter.detach())
            place = HOST if index in as_rows else device
            reducer.add(self.names[index], (0, shape, number, place), index in as_rows)
        flag = reducer.add("<second round>", (0, (1,), TYPES[torch.float32], HOST), False)
        generation = generation_agreed(told, settings.process_set)
        return World(generation, name, reducer, as_rows, sparse - as_rows, flag)

    def _numbered_groups(self, as_rows: set[int]) -> list[list[str]]:
        """As many groups as were asked for, of gradients that come one after the other."""
        dense = [one for index, one in enumerate(self.names) if index not in as_rows]
        count = min(self.settings.number_of_groups, len(dense))
        ends = [len(dense) * index // count for index in range(count + 1)] if count else []
        return [dense[begin:end] for begin, end in itertools.pairwise(ends)]

    def _go_round(self, world: World) -> Iterator[None]:
        """Can be begun again where a signal has cut it off."""
        reducer, current = world.reducer, self._step.round
        if not current.told:
            if reducer.synchronized():
                reducer.next_step()
            self._send_own(world)
            current.told = True
            if reducer.missing(0) is None:
                yield  # the others of this pass tell theirs before one waits
        if not current.filled:
            while (missing := reducer.missing(_SLICE_MS)) is None:
                yield
            for index in missing:
                self._fill(index, world)
            current.filled = True
        while not reducer.synchronized() and not reducer.synchronize(_SLICE_MS):
            yield
        self._take_results(world)

    def _send_own(self, world: World) -> None:
        step = self._step
        if step.round.is_second:
            more, step.more = step.more, {}
            for index, gradient in more.items():
                self._send(index, gradient.contiguous())
            return
        if len(step.round.sent) < len(self.parameters):
            for index, parameter in enumerate(self.parameters):
                if index not in step.round.sent and self._has_gradient(index, parameter):
                    self._send(index, self._gradient(index))
        if step.more:
            self._ask_for_second_round(world)

    def _has_gradient(self, index: int, parameter: torch.nn.Parameter) -> bool:
        """Whether there is a gradient that counts, also one that the program has made."""
        if parameter.grad is None or not self._owns(index):
            return False
        return index in self._step.come or self._old_part_of_a_sum(index) is None

    def _ask_for_second_round(self, world: World) -> None:
        flag = torch.zeros(1)  # that it comes counts
        world.reducer.ready(world.second_round, tensor_tuple(flag), flag, -1)

    def _fill(self, index: int, world: World) -> None:
        """Takes part with what other ranks have and this one has not."""
        if index == world.second_round:
            self._ask_for_second_round(world)
            return
        parameter, step = self.parameters[index], self._step
        if not step.round.is_second and parameter.grad is not None:
            old = self._old_part_of_a_sum(index)
            if old is None:
                self._send(index, self._gradient(index))
                return
            step.before[index] = old
            parameter.grad = None
        zeros = self._zeros(parameter, index in world.as_rows)
        if parameter.grad is None and not step.was_cut_off:
            parameter.grad = zeros
        self._send(index, zeros)

    @staticmethod
    def _zeros(parameter: torch.nn.Parameter, as_rows: bool) -> torch.Tensor:
        dtype = getattr(parameter, "grad_dtype", None) or parameter.dtype  # from torch 2.10
        if not as_rows:
            layout = torch.contiguous_format
            return torch.zeros_like(parameter, dtype=dtype, memory_format=layout)
        rows = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
        values = torch.empty((0, *parameter.shape[1:]), dtype=dtype, device=parameter.device)
        return torch.sparse_coo_tensor(rows, values, parameter.shape)

    # --- gradients ---

    def _gradient(self, index: int) -> torch.Tensor:
        """The gradient of a parameter, as it can travel, which it is from now on."""
        parameter = self.parameters[index]
        gradient = parameter.grad
        assert gradient is not None
        if gradient.requires_grad:
            gradient = gradient.detach()
        if self._world is None or index not in self._world.as_rows:
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if not gradient.is_contiguous():
                gradient = gradient.contiguous()
        if gradient is not parameter.grad:
            parameter.grad = gradient
        return gradient

    def _send(self, index: int, gradient: torch.Tensor) -> None:
        assert self._world is not None
        if index in self._world.as_rows:
            if gradient.is_sparse and gradient.sparse_dim() != 1:
                gradient = gradient.to_dense()
            sparse = (gradient if gradient.is_sparse else gradient.to_sparse(1)).coalesce()
            rows = sparse.indices()[0].cpu().contiguous()
            values = sparse.values().cpu().contiguous()
            self._world.reducer.ready_sparse(index, tensor_tuple(rows), tensor_tuple(values))
            self._step.round.sent[index] = (gradient, gradient, None)
            return
        travels, context = gradient, None
        if built_in_of(self.settings.compression) is None:
            travels, context = self.settings.compression.compress(gradient)
            travels = travels.contiguous()
        # A tensor of its own keeps the memory also if that of the gradient is exchanged.
        keep = travels.detach()
        self._world.reducer.ready(index, tensor_tuple(travels), keep, stream_of(travels))
        self._step.round.sent[index] = (gradient, travels, context)

    def _take_results(self, world: World) -> None:
        current, was_cut_off = self._step.round, self._step.was_cut_off
        if built_in_of(self.settings.compression) is None:
            for gradient, travels, context in current.sent.values():
                gradient.copy_(self.settings.compression.decompress(travels, context))
        for index in world.as_rows & current.sent.keys():
            rows = self._reduced_rows(world.reducer, index)
            current.sent[index] = (rows, rows, None)
            if not current.is_second and not was_cut_off:
                self.parameters[index].grad = rows
        if current.is_second and not was_cut_off:
            for index, (gradient, _, _) in current.sent.items():
                self._add(index, gradient)

    def _reduced_rows(self, reducer: _core.Reducer, index: int) -> torch.Tensor:
        parameter = self.parameters[index]
        rows, values = reducer.reduced(index)
        like = torch.empty(0, dtype=torch.int64)
        return torch.sparse_coo_tensor(
            result_tensor(reducer, rows, like).clone().unsqueeze(0),
            result_tensor(reducer, values, parameter.detach().cpu()).clone(),
            parameter.shape,
        ).to(parameter.device)

    def _add(self, index: int, part: torch.Tensor) -> None:
        """Adds a part to a gradient. It keeps its memory, or gets that of the part."""
        parameter = self.parameters[index]
        gradient = parameter.grad
        if gradient is None or part.is_sparse or gradient.is_sparse:
            parameter.grad = part if gradient is None else part + gradient
        elif self._step.round.is_second:
            gradient.add_(part)
        else:
            parameter.grad = part.add_(gradient)

    def _make_sparse(self, indices: set[int]) -> None:
        for index in indices:
            gradient = self.parameters[index].grad
            if gradient is not None and not gradient.is_sparse:
                self.parameters[index].grad = gradient.to_sparse(1)

    def mean(self, result: Any) -> Any:
        """The mean over all ranks of what a closure gives; what is no number stays as it is."""
        if isinstance(result, float):
            return float(self.mean(torch.tensor(result, dtype=torch.float64)))
        is_number = isinstance(result, torch.Tensor) and result.is_floating_point()
        if self._world is None or not is_number or not self._takes_part():
            return result
        name = f"{self._world.name}.<loss>"
        return allreduce(
            result.detach(), name=name, op=Average, process_set=self.settings.process_set
        )
