"""An optimizer's gradients, reduced while a backward pass goes on."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from .gradient_exchange import GradientExchange
from .gradient_step import Settings
from .wrapped_optimizer import WrappedOptimizer


class ReducedGradients(WrappedOptimizer):
    """The part of a DistributedOptimizer that makes gradients those of all ranks.

    ``gradient_exchange.py`` says when.
    """

    def _distribute(
        self, named: dict[torch.nn.Parameter, str], settings: Settings, passes: int
    ) -> None:
        self._exchange = GradientExchange(settings, passes)
        self._exchange.add(named)
        self._synchronized = False  # by the program, which then says that the step need not
        self._should_synchronize = True

    @property
    def _parameter_names(self) -> dict[torch.nn.Parameter, str]:
        """Of Horovod, where programs read it."""
        return dict(zip(self._exchange.parameters, self._exchange.names))

    def _check_is_between_steps(self, call: str) -> None:
        if self._exchange.is_in_step():
            raise ValueError(f"{call}() must come between two steps")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own, between two steps; by all ranks, whose gradients are reduced."""
        self._check_is_between_steps("add_param_group")
        super().add_param_group(param_group)  # type: ignore[misc]
        groups = self.param_groups
        self._exchange.add(
            {
                parameter: f"allreduce.noname.{len(groups) - 1}.{index}"
                for index, parameter in enumerate(groups[-1]["params"])
            }
        )

    def set_backward_passes_per_step(self, passes: int) -> None:
        """So many backward passes add up before gradients are reduced; the same on all ranks."""
        self._check_is_between_steps("set_backward_passes_per_step")
        self._exchange.passes = passes

    def synchronize(self) -> None:
        """Blocks until all gradients are those of all ranks.

        After the last backward pass of a step they are, and this does nothing. It is needed by a
        rank that makes fewer passes than the others, or none. ``with optimizer.skip_synchronize():
        optimizer.step()`` comes after it.
        """
        self._exchange.synchronize()
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
        """One step with the gradients of all ranks.

        A closure may be called several times. Each time the optimizer gets the mean of the losses
        of all ranks, so that all take the same way.
        """
        if closure is not None:
            result = super().step(lambda: self._reduced(closure))  # type: ignore[misc]
        else:
            if self._should_synchronize:
                self._warn_of_second_synchronize()
                self._exchange.synchronize()
            result = super().step()  # type: ignore[misc]
        self._synchronized = False
        self._exchange.note_step()
        self._tell_inner_of_step()
        return result

    def _reduced(self, closure: Any) -> Any:
        loss = closure()
        if not self._should_synchronize:
            return loss
        self._exchange.synchronize()
        return self._exchange.mean(loss)

    def _warn_of_second_synchronize(self) -> None:
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). This can cause training slowdown. You may want to "
                "consider using optimizer.skip_synchronize() context if you use "
                "optimizer.synchronize() in your code.",
                stacklevel=3,
            )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own. What backward passes have left of this step does not count."""
        self._exchange.forget_step()
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer's own. Backward passes before it do not count."""
        super().load_state_dict(state_dict)
        self._exchange.forget_step()
        self._synchronized = False
        self._should_synchronize = True
