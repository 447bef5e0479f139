"""What all optimizers have that were made of another one."""

from __future__ import annotations

from typing import Any

import torch


class WrappedOptimizer:
    """Shares groups and state with the optimizer that was given, of whose class it is, too."""

    param_groups: list[dict[str, Any]]
    state: Any
    _inner: torch.optim.Optimizer  # that was given; a scheduler may have been made for it

    @classmethod
    def _made_of(cls, optimizer: torch.optim.Optimizer) -> Any:
        own = type(optimizer)
        made: Any = object.__new__(type(own.__name__, (cls, own), {"__doc__": own.__doc__}))
        made.__dict__.update(optimizer.__dict__)
        # The step that a scheduler has wrapped is that of the optimizer that was given.
        made.__dict__.pop("step", None)
        made._inner = optimizer
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, or what is saved, is an optimizer of one process, of the class that was given."""
        own = type(self).__bases__[1]
        return object.__new__, (own,), own.__getstate__(self)  # type: ignore[attr-defined]

    def _tell_inner_of_step(self) -> None:
        """Schedulers warn if the optimizer that they were made for has not made a step."""
        inner: Any = self._inner
        inner._opt_called = True  # from torch 2.4
        inner._step_count = getattr(inner, "_step_count", 0) + 1

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the optimizer's own. Groups and state stay the objects that they are.

        The optimizer that was given shares them, and with it a scheduler that was made for it.
        """
        groups, state = self.param_groups, self.state
        own_groups = list(groups)
        super().load_state_dict(state_dict)  # type: ignore[misc]
        loaded_groups, loaded_state = self.param_groups, self.state
        for own, loaded in zip(own_groups, loaded_groups):
            if loaded is not own:
                own.clear()
                own.update(loaded)
        groups[:] = own_groups
        if loaded_state is not state:
            state.clear()
            state.update(loaded_state)
        self.param_groups, self.state = groups, state
