"""Starting a job from Python: ``hvd.run()``, and ``hvdrun`` itself."""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._acceptor import Acceptor
from ._channel import Channel, ChannelError
from ._descriptors import above_standard_streams, socket_above_standard_streams
from ._worker import KEY_VARIABLE, PORT_VARIABLE, Failed, dumps, print_error
from .errors import RunError

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def hvdrun_path() -> str:
    """The program ``hvdrun`` that belongs to this package.

    Raises:
        FileNotFoundError: it is neither in the package, nor in its build tree, nor in PATH.
        PermissionError: it is there, and cannot be executed.
    """
    candidates = [
        os.path.join(_PACKAGE, "bin", "hvdrun"),
        os.path.join(_PACKAGE, "..", "..", "bin", "hvdrun"),
        shutil.which("hvdrun") or "",
    ]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return os.path.realpath(candidate)
    for candidate in candidates:
        if os.path.exists(candidate):
            raise PermissionError(f"{candidate} exists, but cannot be executed")
    raise FileNotFoundError("hvdrun is not there: not in the package, and not in PATH")


def main() -> None:
    """The command ``hvdrun`` of the wheel: becomes the program."""
    path = hvdrun_path()
    os.execv(path, ["hvdrun", *sys.argv[1:]])


def _flags(values: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for flag, value in values.items():
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags


def _ports(arguments: Sequence[str]) -> range:
    """The ports of --port-range, which hvdrun checks; without it 0, which is any free one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port-range", nargs="?", default=os.environ.get("HVD_PORT_RANGE"))
    given = parser.parse_known_args(arguments)[0].port_range
    ends = re.fullmatch(r"(\d{1,5})-(\d{1,5})", given or "")
    return range(int(ends[1]), min(int(ends[2]), 65535) + 1) if ends else range(1)


def _listen(ports: range) -> socket.socket:
    """At a port of all addresses of this machine, of IPv4 and of IPv6."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    why: OSError | None = None
    for port in ports:
        try:
            listener = socket.create_server(
                ("", port), family=family, backlog=1024, dualstack_ipv6=both
            )
            return socket_above_standard_streams(listener)
        except OSError as error:
            why = error
    raise RunError(
        f"hvd.run() has no port to listen on: {why}; with --port-range it needs one of that range"
    )


# By generation and rank: the size of that world, and the packed result.
_Results = dict[tuple[int, int], tuple[int, bytes]]


class _Job:
    """One job: gives its workers the function, and takes their results."""

    def __init__(self, call: bytes, ports: range = range(1)) -> None:
        self._call = call
        self._key = secrets.token_bytes(32)
        # The workers reach it where they reach hvdrun; the key proves each side to the other.
        listener = _listen(ports)
        self.port: int = listener.getsockname()[1]
        self._lock = threading.Lock()
        self.results: _Results = {}
        self.faults: list[str] = []  # of connections that others have tampered with
        self._acceptor = Acceptor(listener, self._key, self._serve)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            KEY_VARIABLE: self._key.hex(),
            PORT_VARIABLE: str(self.port),
        }

    def close(self) -> None:
        self._acceptor.close()

    def _serve(self, channel: Channel) -> None:
        with channel:
            try:
                channel.send(self._call)
                generation, rank, size, packed = pickle.loads(channel.receive())
                with self._lock:
                    self.results[generation, rank] = (size, packed)
                channel.send(b"taken")
            except ChannelError as error:
                self.faults.append(str(error))
            except (EOFError, OSError):
                pass  # a worker that is gone, of which hvdrun says how


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
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    arguments: Sequence[str] = (),
) -> list[Any]:
    """Runs a function on all workers of a job, and gives their results in the order of the ranks.

    The function is sent by cloudpickle if it is installed, else by pickle, which takes functions of
    modules that the workers can import, and those of the main program by its file. The results of
    an elastic job are those of its last world.

    Args:
        func, args, kwargs: what each worker calls, after ``hvd.init()`` of its own.
        num_proc: the number of workers.
        min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, hosts, hostfile,
        host_discovery_script, start_timeout, ssh_port, ssh_identity_file, output_filename, verbose,
        network_interfaces: the flags of ``hvdrun`` of these names.
        network_interface, np, min_np, max_np: older names of Horovod's.
        disable_cache, use_gloo: of Horovod's signature; they have no effect.
        use_mpi, mpi_args: of Horovod's signature; hvdrun says that it has no MPI.
        executable: the Python of the workers; None: this one.
        arguments: more flags for ``hvdrun``.

    Raises:
        RunError: a worker failed or gave no result, or the job could not be started, or the
            function cannot be packed.
    """
    chosen = num_proc if num_proc is not None else np
    if chosen is None and not (hosts or hostfile or host_discovery_script):
        chosen = 1
    interfaces = network_interface or network_interfaces or []
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
            "--disable-cache": bool(disable_cache),
            "--output-filename": output_filename,
            "--verbose": bool(verbose),
            "--gloo": bool(use_gloo),
            "--mpi": bool(use_mpi),
            "--mpi-args": mpi_args or None,
            "--network-interface": (
                interfaces if isinstance(interfaces, str) else ",".join(interfaces)
            )
            or None,
        }
    )
    if cooldown_range is not None:
        flags += ["--blacklist-cooldown-range", *(str(value) for value in cooldown_range)]
    job = _Job(dumps((func, tuple(args), kwargs or {})), _ports(arguments))
    return _run_job(job, [*flags, *arguments, executable or sys.executable])


_CALLER_VARIABLE = "HVD_CALLER_FD"


@contextlib.contextmanager
def _end_of_this_process() -> Iterator[int]:
    """A descriptor for hvdrun, which is readable once this process has ended."""
    try:
        descriptors = [os.pidfd_open(os.getpid())]
    except (AttributeError, OSError):  # the headers of Python's build, or Linux, are before 5.3
        # Children that are forked without exec keep the second one open, too.
        descriptors = list(os.pipe())
    descriptors = [above_standard_streams(one) for one in descriptors]
    try:
        yield descriptors[0]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _run_job(job: _Job, command: list[str]) -> list[Any]:
    """``command``: the flags of hvdrun, and the Python of the workers."""
    # hvdrun withholds variables whose names look like secrets, unless --env names them.
    sends_key = ["--env", KEY_VARIABLE]
    try:
        with _end_of_this_process() as end:
            process = subprocess.Popen(
                [hvdrun_path(), *sends_key, *command, "-c", _program_of_worker()],
                env={**job.environment(), _CALLER_VARIABLE: str(end)},
                pass_fds=[end],
                stdout=None if _is_open(1) else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            errors = _pass_on(process)
    finally:
        job.close()
    if process.returncode != 0:
        _raise_first_failure(job.results)
        reasons = "\n".join([errors, *job.faults])
        raise RunError(f"hvdrun ended with exit code {process.returncode}:\n{reasons}")
    return _results_of_last_world(job.results)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _program_of_worker() -> str:
    """Python's -c looks for modules in the working directory first, where others may have put some.

    So that folder goes before anything is imported. That of this package is the last one, for a
    Python that does not find hvd by itself.
    """
    path = f"[*filter(None, sys.path), {os.path.dirname(_PACKAGE)!r}]"
    return f"import sys; sys.path[:] = {path}; from hvd._worker import main; sys.exit(main())"


def _pass_on(process: subprocess.Popen[bytes]) -> str:
    """Passes the job's errors on, and gives their last lines, when it has ended."""
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            text = line.decode("utf-8", "replace")
            print_error(text)
            lines = [*lines[-19:], text]
        process.wait()
    except BaseException:
        process.terminate()
        # Workers that are about to end do not wait for a reader of their errors.
        for _ in process.stderr:
            pass
        process.wait()
        raise
    return "".join(lines)


def _raise_first_failure(results: _Results) -> None:
    """Of the newest world in which a function has raised."""
    for (_, rank), (_, packed) in sorted(
        results.items(), key=lambda item: (-item[0][0], item[0][1])
    ):
        result = pickle.loads(packed)
        if isinstance(result, Failed):
            raise RunError(f"the function failed on rank {rank}:\n{result.text}")


def _results_of_last_world(results: _Results) -> list[Any]:
    """Of a job that has succeeded: what was sent from earlier worlds counts no more."""
    if not results:
        raise RunError("no rank has given a result: they ended before their function returned")
    last = max(generation for generation, _ in results)
    of_last = {place: sent for place, sent in results.items() if place[0] == last}
    _raise_first_failure(of_last)
    size = max(size for size, _ in of_last.values())
    missing = [rank for rank in range(size) if (last, rank) not in of_last]
    if missing:
        ranks = ", ".join(str(rank) for rank in missing)
        raise RunError(
            f"no result came from rank{'s' if len(missing) > 1 else ''} {ranks}: the process ended "
            "before its function returned, as after sys.exit(0)"
        )
    return [pickle.loads(of_last[last, rank][1]) for rank in range(size)]
