"""Allreduce in functions that JAX traces, as a primitive of JAX that XLA compiles for CPUs.

The compiled program calls hvd (extension/xla.c) with the arrays where they lie, and goes on while
they are reduced.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.ffi
import numpy as np
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import ad, batching, mlir

from hvd import _core
from hvd._collectives import ReduceArguments
from hvd._work import Average, ReduceOp, Sum
from hvd.basics import number_of

_TARGET = "hvd_allreduce"

_allreduce = Primitive(_TARGET)
_allreduce.multiple_results = True


def allreduce_leaves(leaves: Sequence[Any], call: ReduceArguments) -> list[Any]:
    """Reduces arrays as one group; some of them are traced."""
    return _allreduce.bind(
        *leaves,
        name=call.name or "",
        op=int(call.op),
        prescale=float(call.prescale),
        postscale=float(call.postscale),
        process_set=number_of(call.process_set),
        compression=int(call.compression),
    )


# --- what JAX asks of a primitive ------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _compiled(**parameters: Any) -> Any:
    return jax.jit(functools.partial(_allreduce.bind, **parameters))


def _evaluate(*leaves: Any, **parameters: Any) -> Any:
    return _compiled(**parameters)(*leaves)


def _shapes_of(*leaves: Any, **parameters: Any) -> list[Any]:
    del parameters
    return [jax.core.ShapedArray(leaf.shape, leaf.dtype) for leaf in leaves]


def _transposed(gradients: Any, *leaves: Any, op: int, **parameters: Any) -> Any:
    """The sum of a loss over all ranks is what is differentiated, as in PyTorch's calls."""
    del leaves
    if op not in (Average, Sum):
        raise NotImplementedError(f"an allreduce by {ReduceOp(op).name} cannot be differentiated")
    return _allreduce.bind(
        *(ad.instantiate_zeros(gradient) for gradient in gradients), op=op, **parameters
    )


def _batched(leaves: Any, dimensions: Any, **parameters: Any) -> Any:
    return _allreduce.bind(*leaves, **parameters), dimensions


def _base_name(context: Any, name: str) -> str:
    """The same on all ranks for the same call, whatever a rank has traced before."""
    module = context.module_context.module.operation.attributes["sym_name"].value
    return f"jax.{module}.{name or 'allreduce'}"


class _Calls(dict[str, int]):
    """The number of the last call in a program, by its name without the number."""


def _calls_of(program: Any) -> _Calls:
    found = [kept for kept in program.keepalives if isinstance(kept, _Calls)]
    if not found:
        found.append(_Calls())
        program.add_keepalive(found[0])
    return found[0]


def _is_argument(operand: Any) -> bool:
    """Whether the program was given it, and has not computed it."""
    block = operand.owner
    if not isinstance(block, ir.Block):
        return False
    attributes = block.owner.attributes
    return "sym_name" in attributes and attributes["sym_name"].value == "main"


def _lowered(context: Any, *operands: Any, name: str, **parameters: Any) -> Any:
    base = _base_name(context, name)
    # A program may have several calls that are alike.
    calls = _calls_of(context.module_context)
    number = calls[base] = calls.get(base, -1) + 1
    attributes = {
        "name": f"{base}.{number}",
        "op": np.int32(parameters["op"]),
        "compression": np.int32(parameters["compression"]),
        "process_set": np.int32(parameters["process_set"]),
        "prescale": np.float64(parameters["prescale"]),
        "postscale": np.float64(parameters["postscale"]),
    }
    # What the program has computed is reduced where it lies; XLA copies it if it is needed later.
    # What it was given would always be copied, and hvd reads it as it reduces anyway.
    in_place = {index: index for index, operand in enumerate(operands) if not _is_argument(operand)}
    rule = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True, operand_output_aliases=in_place)
    return rule(context, *operands, **attributes)


def _register() -> None:
    jax.ffi.register_ffi_target(_TARGET, _core.xla_allreduce(), platform="cpu")
    _allreduce.def_impl(_evaluate)
    _allreduce.def_abstract_eval(_shapes_of)
    ad.deflinear2(_allreduce, _transposed)
    batching.primitive_batchers[_allreduce] = _batched
    # Later versions would share the code of calls that are alike, and so their names.
    known = inspect.signature(mlir.register_lowering).parameters
    apart = {"cacheable": False} if "cacheable" in known else {}
    mlir.register_lowering(_allreduce, _lowered, platform="cpu", **apart)


_register()
