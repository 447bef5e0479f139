"""Programs that the report runs, none of which stays behind."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile
import time

GRACE = 10.0  # seconds that an interrupted program has to take down what it started
PR_SET_CHILD_SUBREAPER = 36
ENDING = (signal.SIGINT, signal.SIGTERM)


class ProgramError(Exception):
    """A program failed, or took too long."""


def adopt_orphans():
    """From now on processes whose parent has died become children of this one, which ends them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def nothing_left():
    """Within it programs have a folder of their own for files, and all of it ends with it."""
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="hvd-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)  # sshd of pretend hosts reads below it as another user
        before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), folder
        try:
            yield
        finally:
            # A second Ctrl-C does not interrupt the clean-up.
            handlers = {one: signal.signal(one, signal.SIG_IGN) for one in ENDING}
            end_all()
            for one, handler in handlers.items():
                signal.signal(one, handler)
            del os.environ["TMPDIR"]
            if before is not None:
                os.environ["TMPDIR"] = before


def descendants(pid):
    """The ids of all processes below this one."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found += [child, *descendants(child)]
    return found


def reap():
    """Collects children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def end_all():
    """Ends all descendants: politely first, as a bed of pretend hosts takes itself down."""
    for number, seconds in (signal.SIGINT, GRACE), (signal.SIGTERM, GRACE / 2), (signal.SIGKILL, 5):
        reap()
        deadline = time.monotonic() + seconds
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while time.monotonic() < deadline:
            reap()
            if not descendants(os.getpid()):
                return
            time.sleep(0.02)


def run(command, seconds, environment=None):
    """The standard output of a command. ProgramError if it fails or takes more than `seconds`."""
    words = [str(word) for word in command]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {})},
        start_new_session=True,  # Ctrl-C comes from end_all(), once
    )
    name = pathlib.Path(words[0]).name
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        end_all()
        raise ProgramError(f"{name} did not end within {seconds} s") from None
    # Processes that a launcher leaves behind would disturb the next row.
    reap()
    if descendants(os.getpid()):
        end_all()
    if process.returncode != 0:
        said = (err.strip() or out.strip() or "it said nothing").splitlines()
        raise ProgramError(f"{name} ended with {process.returncode}: {' | '.join(said[-3:])}")
    return out
