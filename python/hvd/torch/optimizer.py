"""An optimizer whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hvd._collectives import gradient_arguments
from hvd._work import Adasum, Average
from hvd.basics import ProcessSet, global_process_set
from hvd.shards import shards_of

from .adasum_steps import AdasumSteps
from .compression import Compression, Compressor
from .gradient_step import Settings
from .reduced_gradients import ReducedGradients
from .sharded_gradients import ShardedGradients, TreeGradients
from .wrapped_optimizer import WrappedOptimizer


def _named(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None,
) -> dict[torch.nn.Parameter, str]:
    """The names of all parameters that the optimizer changes."""
    groups = [group["params"] for group in optimizer.param_groups]
    if named_parameters is None:
        return {
            parameter: f"allreduce.noname.{i}.{j}"
            for i, group in enumerate(groups)
            for j, parameter in enumerate(group)
        }
    given = list(named_parameters)
    if any(not isinstance(item, tuple) for item in given):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    names = [name for name, _ in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            "Parameter names in named_parameters must be unique. "
            f"Found duplicates: {', '.join(twice)}"
        )
    by_parameter = {parameter: name for name, parameter in given}
    unnamed = [
        parameter for group in groups for parameter in group if parameter not in by_parameter
    ]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Their shapes: {', '.join(str(tuple(one.shape)) for one in unnamed)}"
        )
    return {parameter: by_parameter[parameter] for group in groups for parameter in group}


def _group_names(
    groups: Sequence[Sequence[torch.nn.Parameter]], named: dict[torch.nn.Parameter, str]
) -> list[list[str]]:
    for group in groups:
        if not isinstance(group, (list, tuple)):
            raise ValueError(
                "groups should be a non-negative integer or a list of list of tensors."
            )
        if any(one not in named for one in group):
            raise ValueError("a group has a parameter that is not one of the optimizer's")
    chosen = [one for group in groups for one in group]
    if len(set(chosen)) != len(chosen):
        raise ValueError("a parameter stands in two groups")
    return [[named[one] for one in group] for group in groups]


def _over_shards(
    optimizer: torch.optim.Optimizer,
    named: dict[torch.nn.Parameter, str],
    settings: Settings,
    passes: int,
    shards: int,
    deterministic: bool,
    named_buffers: Iterable[tuple[str, torch.Tensor]],
) -> Any:
    shards_of(shards, 0, 1)  # raises for a number that cannot be
    if not deterministic:
        sharded = ShardedGradients._made_of(optimizer)
        sharded._distribute_shards(named, settings, passes, shards, named_buffers)
        return sharded
    if settings.compression is not Compression.none or settings.predivide != 1.0:
        raise ValueError("a deterministic sum knows neither compression nor a predivide factor")
    tree = TreeGradients._made_of(optimizer)
    tree._distribute_shards(named, settings, shards, named_buffers)
    return tree


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    shards: int = 0,
    deterministic: bool = False,
    named_buffers: Iterable[tuple[str, torch.Tensor]] | None = None,
) -> Any:
    """Wraps an optimizer: its steps use the gradients of all ranks.

    Gradients travel while a backward pass goes on, or at its end if all workers are on one host and
    outnumber its cores. ``backward()`` returns when they are reduced, so that they can be clipped,
    unscaled, looked at or thrown away, as in one process. A parameter that has a gradient on no
    rank has none afterwards. docs/python.md has the whole contract.

    It stays an instance of the optimizer's class, and shares its parameters and state. A copy, or
    what ``torch.save()`` keeps of it, is an optimizer of the class that was given.

    Optimizers with the same names of parameters make their first backward passes in each world in
    the same order on all ranks.

    Args:
        named_parameters: ``model.named_parameters()``; the same names on all ranks. None: numbered.
        compression: the type in which gradients travel, or a Compressor of your own.
        backward_passes_per_step: so many passes add up before gradients are reduced.
        op: Average, Sum, or Adasum, which combines the steps instead of the gradients.
        gradient_predivide_factor: for Average: gradients are divided by it before they are added,
            and multiplied by it afterwards.
        num_groups: gradients are reduced in so many groups; 0: as they come.
        groups: the same number, or lists of parameters that are reduced together.
        sparse_as_dense: sparse gradients are made dense first.
        process_set: the ranks whose gradients are reduced; others step on their own.
        shards: a step goes over so many shards of its batch, whatever the number of ranks, in a
            loop ``for shard in optimizer.shards()``; then ``backward_passes_per_step`` counts those
            of a shard. docs/shards.md has the whole contract.
        deterministic: the gradients of shards are added along a tree that only their number
            determines, so that they have the same bits in each world.
        named_buffers: ``model.named_buffers()``: what shards change of them is averaged, too.

    Raises:
        ValueError: an argument is wrong.
    """
    gradient_arguments("", op, gradient_predivide_factor, process_set)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if isinstance(optimizer, WrappedOptimizer):
        raise ValueError("this optimizer is already a DistributedOptimizer")
    named = _named(optimizer, named_parameters)
    if op == Adasum:
        if shards != 0:
            raise ValueError("Adasum does not know shards")
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support process sets yet")
        combined = AdasumSteps._made_of(optimizer)
        combined._distribute(list(named.values()), compression)
        return combined

    if shards == 0 and (deterministic or named_buffers is not None):
        raise ValueError("deterministic and named_buffers are for an optimizer with shards")
    if isinstance(groups, int):
        num_groups, groups = groups, None
    if num_groups < 0:
        raise ValueError("groups should be a non-negative integer or a list of list of tensors.")
    settings = Settings(
        compression,
        op,
        gradient_predivide_factor,
        [] if groups is None else _group_names(groups, named),
        num_groups,
        sparse_as_dense,
        process_set,
        shards if op == Average else 0,
    )
    if shards != 0:
        return _over_shards(
            optimizer,
            named,
            settings,
            backward_passes_per_step,
            shards,
            deterministic,
            named_buffers or (),
        )
    made = ReducedGradients._made_of(optimizer)
    made._distribute(named, settings, backward_passes_per_step)
    return made
