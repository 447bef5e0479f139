"""Starting a job from Python: ``hvd.run()``, and ``hvdrun`` itself."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import (
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from multiprocessing.context import AuthenticationError
from typing import Any

from ._worker import KEY_VARIABLE, PORT_VARIABLE, Failed, dumps
from .errors import HvdError

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class RunError(HvdError):
    """The job of ``hvd.run()`` failed. The text says how, with the last lines of its errors."""


def hvdrun_path() -> str:
    """The program ``hvdrun`` that belongs to this package.

    Raises:
        FileNotFoundError: it is neither in the package, nor in its build tree, nor in PATH.
    """
    candidates = [
        os.path.join(_PACKAGE, "bin", "hvdrun"),
        os.path.join(_PACKAGE, "..", "..", "bin", "hvdrun"),
        shutil.which("hvdrun") or "",
    ]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return os.path.realpath(candidate)
    raise FileNotFoundError("hvdrun is not there: not in the package, and not in PATH")


def main() -> None:
    """The command ``hvdrun`` of the wheel: becomes the program."""
    path = hvdrun_path()
    os.execv(path, ["hvdrun", *sys.argv[1:]])


def _flags(values: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for flag, value in values.items():
        if value is not None:
            flags += [flag, str(value)]
    return flags


def _cut_off(connection: Connection) -> None:
    """Ends what waits for the other side."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


class _Job:
    """One job: gives its workers the function, and takes their results."""

    _PROOF_TIMEOUT = 30  # seconds, for a client to prove that it knows the key

    def __init__(self, call: bytes) -> None:
        self._call = call
        self._key = secrets.token_bytes(32)
        # The workers reach it where they reach hvdrun; the key proves each side to the other.
        self._listener = Listener(("0.0.0.0", 0), backlog=1024)
        self._lock = threading.Lock()
        self._closed = False
        self.results: dict[int, tuple[int, Any]] = {}  # by rank: generation and result
        threading.Thread(target=self._accept, name="hvd run", daemon=True).start()

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            KEY_VARIABLE: self._key.hex(),
            PORT_VARIABLE: str(self._listener.address[1]),
        }

    def close(self) -> None:
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                time.sleep(0.05)  # closed, or strangers have taken all descriptors for a while
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            with connection:
                # Here, so that a stranger who says nothing keeps no worker waiting.
                limit = threading.Timer(self._PROOF_TIMEOUT, _cut_off, (connection,))
                limit.daemon = True
                limit.start()
                try:
                    deliver_challenge(connection, self._key)
                    answer_challenge(connection, self._key)
                finally:
                    limit.cancel()
                connection.send_bytes(self._call)
                generation, rank, packed = connection.recv()
                with self._lock:
                    if generation >= self.results.get(rank, (-1, None))[0]:
                        self.results[rank] = (generation, packed)
                connection.send_bytes(b"taken")
        except (EOFError, OSError, AuthenticationError):
            pass  # a stranger, or a worker that is gone, of which hvdrun says how


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[float] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    output_filename: str | None = None,
    verbose: bool = False,
    network_interfaces: str | None = None,
    executable: str | None = None,
    *,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    arguments: Sequence[str] = (),
) -> list[Any]:
    """Runs a function on all workers of a job, and gives their results in the order of the ranks.

    The function is sent by cloudpickle if it is installed, else by pickle, which takes functions of
    modules that the workers can import, and those of the main program by its file.

    Args:
        func, args, kwargs: what each worker calls, after ``hvd.init()`` of its own.
        num_proc: the number of workers; ``np`` is another name for it.
        min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, hosts, hostfile,
        host_discovery_script, start_timeout, ssh_port, ssh_identity_file, output_filename, verbose,
        network_interfaces: the flags of ``hvdrun`` of these names.
        executable: the Python of the workers; None: this one.
        arguments: more flags for ``hvdrun``.

    Raises:
        RunError: a worker failed, or the job could not be started.
    """
    chosen = num_proc if num_proc is not None else np
    if chosen is None and not (hosts or hostfile or host_discovery_script):
        chosen = 1
    flags = _flags(
        {
            "-np": chosen,
            "--min-np": min_num_proc if min_num_proc is not None else min_np,
            "--max-np": max_num_proc if max_num_proc is not None else max_np,
            "--slots-per-host": slots,
            "--reset-limit": reset_limit,
            "-H": hosts,
            "--hostfile": hostfile,
            "--host-discovery-script": host_discovery_script,
            "--start-timeout": start_timeout,
            "-p": ssh_port,
            "-i": ssh_identity_file,
            "--output-filename": output_filename,
            "--network-interface": network_interfaces,
        }
    )
    if cooldown_range is not None:
        flags += ["--blacklist-cooldown-range", *(str(value) for value in cooldown_range)]
    if verbose:
        flags.append("--verbose")

    job = _Job(dumps((func, tuple(args), kwargs or {})))
    try:
        command = [hvdrun_path(), *flags, *arguments, executable or sys.executable]
        program = "import sys; from hvd._worker import main; sys.exit(main())"
        process = subprocess.Popen(
            [*command, "-c", program], env=job.environment(), stderr=subprocess.PIPE
        )
        errors = _pass_on(process)
        if process.returncode != 0:
            _raise_first_failure(job)
            raise RunError(f"hvdrun ended with exit code {process.returncode}:\n{errors}")
    finally:
        job.close()
    _raise_first_failure(job)
    return [pickle.loads(packed) for _, (_, packed) in sorted(job.results.items())]


def _pass_on(process: subprocess.Popen[bytes]) -> str:
    """Passes the job's errors on, and gives their last lines, when it has ended."""
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            text = line.decode("utf-8", "replace")
            sys.stderr.write(text)
            lines = [*lines[-19:], text]
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return "".join(lines)


def _raise_first_failure(job: _Job) -> None:
    for rank, (_, packed) in sorted(job.results.items()):
        result = pickle.loads(packed)
        if isinstance(result, Failed):
            raise RunError(f"the function failed on rank {rank}:\n{result.text}")
