"""A state that is loaded into an optimizer whose parts others hold."""

from __future__ import annotations

from typing import Any


def load_state_in_place(optimizer: Any, load: Any, state_dict: dict[str, Any]) -> None:
    """Keeps the groups and the state the objects that they are.

    The optimizer that was given to ``DistributedOptimizer()`` shares them, and with it a scheduler
    that was made for that one.
    """
    groups, state = optimizer.param_groups, optimizer.state
    own_groups = list(groups)
    load(state_dict)
    loaded_groups, loaded_state = optimizer.param_groups, optimizer.state
    for own, loaded in zip(own_groups, loaded_groups):
        if loaded is not own:
            own.clear()
            own.update(loaded)
    groups[:] = own_groups
    if loaded_state is not state:
        state.clear()
        state.update(loaded_state)
    optimizer.param_groups, optimizer.state = groups, state
