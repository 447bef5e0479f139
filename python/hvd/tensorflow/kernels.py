"""The collectives in TensorFlow's graphs, as operations of the library of extension/tensorflow.c.

A call is known to the other ranks by the name of the function that is traced, and by its place
among the calls there: so a worker that traces the function later agrees with the others.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import hvd
from hvd._collectives import ReduceArguments
from hvd._work import TYPES, Kind
from hvd.basics import number_of
from hvd.compression import built_in_of
from hvd.errors import UnsupportedTypeError, failure_of

_library = tf.load_op_library(os.path.join(os.path.dirname(hvd.__file__), "_tensorflow.so"))

F = TypeVar("F", bound=Callable[..., Any])


def not_converted(function: F) -> F:
    """Keeps AutoGraph from rewriting it, which costs time and changes its exceptions."""
    return cast(F, tf.autograph.experimental.do_not_convert(function))


# --- names -----------------------------------------------------------------------------------

_calls: weakref.WeakKeyDictionary[Any, collections.Counter[Any]] = weakref.WeakKeyDictionary()


def _function() -> Any:
    """The graph of the function that is traced, not that of a branch or a loop in it."""
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ in (
        "CondBranchFuncGraph",
        "WhileCondFuncGraph",
        "WhileBodyFuncGraph",
    ):
        graph = graph.outer_graph
    return graph


def _check_graph() -> None:
    graph = tf.compat.v1.get_default_graph()
    if not graph.building_function:
        raise RuntimeError(
            "hvd.tensorflow is for TensorFlow 2: calls are made eagerly or under tf.function, not "
            "in a graph for a session of TensorFlow 1"
        )
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise RuntimeError(
            "hvd's collectives cannot be compiled by XLA in TensorFlow: leave jit_compile=True "
            "out of the tf.function that calls them, and of functions around it; in Keras, "
            "model.compile(jit_compile=False). Functions that it calls may be compiled"
        )


def _name_of(kind: Kind, name: str | None) -> str:
    if name is None:
        graph = _function()
        # Numbers there come from counters of the process.
        base = re.sub(r"_\d+$", "", graph.name)
        calls = _calls.setdefault(graph, collections.Counter())
        name = f"{base}.{calls[base, kind]}"
        calls[base, kind] += 1
    return f"{kind.name.lower()}.{name}"


# --- operations ------------------------------------------------------------------------------


def _attributes(kind: Kind, call: ReduceArguments, root: int = 0) -> dict[str, Any]:
    return {
        "kind": int(kind),
        "tensor_name": _name_of(kind, call.name),
        "reduce_op": int(call.op),
        "compression": built_in_of(call.compression) or 0,
        "root": root,
        "process_set": number_of(call.process_set),
        "prescale": float(call.prescale).hex(),
        "postscale": float(call.postscale).hex(),
    }


def _checked(tensors: Sequence[Any]) -> list[tf.Tensor]:
    _check_graph()
    converted = [tf.convert_to_tensor(tensor) for tensor in tensors]
    for tensor in converted:
        if tensor.dtype.name not in TYPES:
            raise UnsupportedTypeError(f"hvd cannot send elements of type {tensor.dtype.name}")
    return converted


class Started:
    """Work that an operation of the graph has started."""

    def __init__(self, kind: Kind, given: Sequence[Any], call: ReduceArguments, root: int = 0):
        self._given = _checked(given)
        attributes = _attributes(kind, call, root)
        self._handle, self._results = _library.hvd_start(tensors=self._given, **attributes)

    @staticmethod
    def wait(all_started: Sequence[Started]) -> list[tf.Tensor]:
        """The results of all, one after the other, which are as large as what was given."""
        given = [tensor for started in all_started for tensor in started._given]
        results = _library.hvd_wait(
            handles=[started._handle for started in all_started],
            tensors=[result for started in all_started for result in started._results],
        )
        for result, like in zip(results, given):
            result.set_shape(like.shape)
        return list(results)


def exchange(
    kind: Kind, given: Sequence[Any], call: ReduceArguments, splits: Any = None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The results, with as many rows as the ranks make of it; then the rows from each rank."""
    tensors = _checked(given)
    rows = tf.constant([], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not rows.dtype.is_integer:
        raise ValueError(f"splits are whole numbers, not of type {rows.dtype.name}")
    results, received = _library.hvd_exchange(
        tensors=tensors,
        splits=tf.cast(rows, tf.int64),
        **_attributes(kind, call),
    )
    for result, like in zip(results, tensors):
        if like.shape.rank:
            result.set_shape([None, *like.shape[1:]])
    received.set_shape([None])
    return list(results), received


class Place:
    """Numbers of the world that is there when the graph is executed."""

    SIZE = 0
    RANK = 1
    INCLUDED = 2
    RANK_OF_WORLD = 3
    LOCAL_SIZE = 4
    LOCAL_RANK = 5


def place(what: int, process_set_id: int = 0) -> tf.Tensor:
    """One of them, as an operation."""
    number = _library.hvd_place(kind=what, process_set=process_set_id)
    number.set_shape([])
    return number


# --- failures --------------------------------------------------------------------------------

_FAILURE = re.compile(r"\[hvd (-?\d+)\|(-?\d+)\|([^|\]]*)\|([^\]]*)\] (.*)", re.DOTALL)


@contextlib.contextmanager
def raising_failures_of_hvd() -> Iterator[None]:
    """Makes a failure of hvd what it was, where TensorFlow has made an error of its own of it."""
    try:
        yield
    except tf.errors.OpError as error:
        found = _FAILURE.search(error.message or "")
        if found is None:
            raise
        code, rank, host, cause, text = found.groups()
        # TensorFlow adds the operations that lead there.
        text = text.split("\n\t [[")[0]
        raise failure_of(int(code), text, int(rank), host, cause) from error
