"""States whose tensors are those of PyTorch's models."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from hvd import _work
from hvd.elastic import ObjectState
from hvd.torch.tensors import TYPES, owner_of, tensor_tuple

__all__ = ["TorchState"]


def _rebuild(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> torch.Tensor:
    if 0 in shape:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape).clone().to(device)


def _reduce_tensor(value: Any) -> Any:
    """Leaves the memory of tensors on the host where it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return NotImplemented
    dense = value.detach().cpu().contiguous()
    buffer: Any = b""
    if dense.numel() > 0:
        buffer = pickle.PickleBuffer(dense.reshape(-1).view(torch.uint8).numpy())
    return _rebuild, (buffer, value.dtype, tuple(value.shape), str(value.device))


def _has_fixed_memory(tensor: Any) -> bool:
    """Whether hvd can keep it by its address."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and tensor.numel() > 0
        and tensor.dtype in TYPES
        and tensor.device.type in ("cpu", "cuda")
    )


class TorchState(ObjectState):
    """Models, optimizers, samplers and other objects that survive, as attributes.

    The tensors of models stay where they are, and are changed in place: by the optimizer, by
    ``load_state_dict()``, not by ``model.to()`` or ``resize_()``. Once the state runs, a tensor
    that has gone, moved or changed its shape or type is a RuntimeError.

    Args:
        model: a torch.nn.Module; more may be among the others.
        optimizer: a torch.optim.Optimizer, such as ``DistributedOptimizer()`` gives.
        kwargs: samplers (``ElasticSampler``), schedulers and others with a ``state_dict()``, and
            what ``pickle`` takes.
    """

    _overrides = staticmethod(_reduce_tensor)

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        own = {"model": model, "optimizer": optimizer}
        super().__init__(**{name: one for name, one in own.items() if one is not None}, **kwargs)
        for name in own.keys() - self._names:
            setattr(self, name, None)
        self._kept: dict[str, _work.Tensor] = {}  # by its address, since the run has begun

    def _model_tensors(self) -> dict[str, Any]:
        return {
            f"{name}.{key}": tensor
            for name in self._names
            if isinstance(getattr(self, name), torch.nn.Module)
            for key, tensor in getattr(self, name).state_dict().items()
        }

    def _fixed_tensors(self) -> dict[str, torch.Tensor]:
        seen: set[int] = set()
        fixed = {}
        for name, tensor in self._model_tensors().items():
            if _has_fixed_memory(tensor) and tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                fixed[name] = tensor
        return fixed

    def _tensors(self) -> list[tuple[str, _work.Tensor, object]]:
        fixed = self._fixed_tensors()
        self._kept = {name: tensor_tuple(tensor) for name, tensor in fixed.items()}
        return [(name, self._kept[name], owner_of(tensor)) for name, tensor in fixed.items()]

    def _check_tensors(self) -> None:
        if not self._kept:
            return
        found = {name: tensor_tuple(one) for name, one in self._fixed_tensors().items()}
        for name in [*self._kept, *found]:
            kept, now = self._kept.get(name), found.get(name)
            if kept == now:
                continue
            if kept is None:
                what = "is new"
            elif now is None:
                what = "is not there any more, or not dense"
            elif kept[1:] != now[1:]:
                what = "has another shape, type or device"
            else:
                what = "has moved to other memory"
            raise RuntimeError(
                f"{name} {what}; the models of a state that runs are changed in place"
            )

    def _objects(self) -> Any:
        values = {name: getattr(self, name) for name in self._names}
        objects = {
            name: self._object_of(name)
            for name, value in values.items()
            if not isinstance(value, torch.nn.Module)
        }
        rest = {
            name: tensor
            for name, tensor in self._model_tensors().items()
            if not _has_fixed_memory(tensor)
        }
        return objects, rest

    def _set_objects(self, objects: Any) -> None:
        values, rest = objects
        tensors = self._model_tensors() if rest else {}
        with torch.no_grad():
            for name, saved in rest.items():
                if isinstance(saved, torch.Tensor):
                    tensors[name].copy_(saved)
        super()._set_objects(values)

    def _copy_of_tensors(self) -> Any:
        return {
            name: tensor.detach().cpu().clone() for name, tensor in self._fixed_tensors().items()
        }

    def _set_tensors(self, copy: Any) -> None:
        fixed = self._fixed_tensors()
        with torch.no_grad():
            for name, saved in copy.items():
                fixed[name].copy_(saved)

    def _hand_over(self) -> None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        super()._hand_over()
