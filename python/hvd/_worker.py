"""A worker of ``hvd.run()``: gets the function, calls it, and sends its result back."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import sys
import traceback
from typing import Any

from . import _pickling
from ._channel import connect
from .errors import RunError

KEY_VARIABLE = "HVD_RUN_KEY"
PORT_VARIABLE = "HVD_RUN_PORT"
_MAIN = "__hvd_main__"  # the name under which workers import the program's main module


class Failed:
    """The outcome of a function that raised, instead of a result."""

    def __init__(self, text: str) -> None:
        self.text = text


def dumps(value: Any) -> bytes:
    """Packs a call: by cloudpickle, or with the place of the main program.

    Raises:
        RunError: without cloudpickle it cannot be packed.
    """
    if _pickling.has_cloudpickle:
        return pickle.dumps((sys.path, None, _pickling.dumps_by_value(value)))
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is None and getattr(value[0], "__module__", None) == "__main__":
        raise _needs_cloudpickle("it is defined in a program that is no file")
    try:
        packed = pickle.dumps(value)
    except Exception as error:  # of many types
        raise _needs_cloudpickle(str(error)) from error
    return pickle.dumps((sys.path, main and os.path.abspath(main), packed))


def _needs_cloudpickle(why: str) -> RunError:
    return RunError(
        f"hvd.run() cannot send the function to the workers: {why}. With cloudpickle it can (pip "
        "install cloudpickle, or Debian's python3-cloudpickle); without, the function and its "
        "arguments are those that pickle takes: functions of a module, or of the program's file"
    )


def _loads(packed: bytearray) -> Any:
    path, main, value = pickle.loads(packed)
    # Modules are looked for where the caller found them, too.
    sys.path += [folder for folder in path if folder not in sys.path]
    if main is not None:
        spec = importlib.util.spec_from_file_location(_MAIN, main)
        if spec is None or spec.loader is None:
            raise ImportError(f"{main} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        # Pickle looks there for the names that the program defined in its main module.
        sys.modules["__main__"] = sys.modules[_MAIN] = module
        spec.loader.exec_module(module)
    return pickle.loads(value)


def print_error(text: str) -> None:
    """Writes to stderr, if it is there and takes it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a full disk; a stream that is closed
            sys.stderr.write(text)


def main() -> int:
    """The program of a worker. 1: the function has raised."""
    key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
    address = (os.environ["HVD_RENDEZVOUS_ADDR"], int(os.environ.pop(PORT_VARIABLE)))
    with connect(address, key) as channel:
        packed = channel.receive()
        from . import basics

        result: Any
        try:
            function, args, kwargs = _loads(packed)
            result = function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - raised again by hvd.run()
            result = Failed(traceback.format_exc())
        try:
            value = _pickling.dumps(result)
        except Exception:  # noqa: BLE001 - as above
            result = Failed(traceback.format_exc())
            value = pickle.dumps(result)
        channel.send(pickle.dumps((*basics.last_place(), value)))
        channel.receive()
    if isinstance(result, Failed):
        print_error(result.text)
        return 1
    return 0
