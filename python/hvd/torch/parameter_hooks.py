"""Hooks that autograd calls before and after it adds to the gradient of a parameter."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

_has_hook_after_accumulation = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
# A hook of the node that is set when that is about to run, is not called any more.
_is_before_torch_2 = torch.__version__.startswith("1.")


class Listener(Protocol):
    """Who is told, with the index of the parameter. Hooks do not keep it alive."""

    def before_accumulation(self, index: int) -> None: ...
    def after_accumulation(self, index: int) -> None: ...


# The listeners of a parameter, by its id. The last one that is alive owns its gradient.
_listeners: dict[int, list[weakref.ref[Any]]] = {}


def _forget(parameters: list[torch.nn.Parameter], handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    for parameter in parameters:
        left = [one for one in _listeners.get(id(parameter), []) if one() is not None]
        if left:
            _listeners[id(parameter)] = left
        else:
            _listeners.pop(id(parameter), None)


class ParameterHooks:
    """The parameters of an optimizer, and their hooks. They go with the listener.

    Before torch 2.1 what comes after an accumulation is told by the node that does it. A parameter
    gets another one when its type or shape changes, unless somebody holds the old one, whose
    gradients are refused then. So these hooks are set in each pass anew, at its first gradient.
    """

    def __init__(self, listener: Listener) -> None:
        self.parameters: list[torch.nn.Parameter] = []
        self._listener = weakref.ref(listener)
        self._handles: list[Any] = []
        self._of_pass: list[Any] = []  # nodes and handles
        weakref.finalize(listener, _forget, self.parameters, self._handles).atexit = False

    def add(self, parameter: torch.nn.Parameter) -> None:
        """One parameter more, which may ask for gradients later."""
        index = len(self.parameters)
        self.parameters.append(parameter)
        _listeners.setdefault(id(parameter), []).append(self._listener)
        asks = parameter.requires_grad
        if not parameter.is_floating_point() and not parameter.is_complex():
            return
        parameter.requires_grad_(True)  # only then it takes hooks
        last = None
        if _has_hook_after_accumulation:
            last = parameter.register_post_accumulate_grad_hook(self._after(index))
            self._handles.append(last)
        self._handles.append(parameter.register_hook(self._before(index, last)))
        parameter.requires_grad_(asks)

    def owner(self, index: int) -> Any:
        """The listener that owns the gradient of a parameter that two optimizers have."""
        listeners = _listeners[id(self.parameters[index])]
        while (owner := listeners[-1]()) is None:
            listeners.pop()
        return owner

    def shared(self) -> list[int]:
        """The parameters that another optimizer has, too."""
        return [index for index, one in enumerate(self.parameters) if len(_listeners[id(one)]) != 1]

    def begin_pass(self) -> bool:
        """At the first gradient of a pass. False: nothing comes after its accumulation."""
        if _has_hook_after_accumulation:
            return True
        self.end_pass()
        for index, parameter in enumerate(self.parameters):
            if parameter.requires_grad:
                with torch.enable_grad():
                    view = parameter.expand_as(parameter)
                node = view.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
                self._of_pass.append((node, node.register_hook(self._after(index))))
        return not _is_before_torch_2

    def end_pass(self) -> None:
        """At the end of a pass."""
        for _, handle in self._of_pass:
            handle.remove()
        self._of_pass.clear()

    def _before(self, index: int, last: Any) -> Callable[[torch.Tensor], None]:
        me = self._listener
        parameter = weakref.ref(self.parameters[index])

        def before(_: torch.Tensor) -> None:
            listener = me()
            if last is not None and (own := parameter()) is not None:
                # Hooks of the program may change the gradient before it travels.
                own._post_accumulate_grad_hooks.move_to_end(last.id)  # type: ignore[attr-defined]
            if listener is not None:
                listener.before_accumulation(index)

        return before

    def _after(self, index: int) -> Callable[..., None]:
        me = self._listener

        def after(*_: Any) -> None:
            listener = me()
            if listener is not None:
                listener.after_accumulation(index)

        return after
