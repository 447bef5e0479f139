# By hand: a TorchState job under a kill every few seconds, whose weights must equal those of an
# undisturbed run to the bit.
#
#   PYTHONPATH=build/release/python python3 tests/python/soak.py [--steps N] [--every SECONDS]
import argparse
import collections
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from hvd.launch import hvdrun_path

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elastic_program.py")


def workers_of(steps):
    wanted = [sys.executable, PROGRAM, "torch", str(steps)]
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().decode().rstrip("\0").split("\0") == wanted:
                    found.append(int(name))
        except (OSError, UnicodeDecodeError):
            pass
    return found


class Worlds(threading.Thread):
    """Reads what hvdrun says of its worlds."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream = stream
        self.formed = threading.Event()
        self.count = 0
        self.last = collections.deque(maxlen=40)  # lines
        self.start()

    def run(self):
        for line in self.stream:
            self.last.append(line)
            match = re.match(r"hvdrun: generation \d+: (\d+) worker", line)
            if match:
                self.count += 1
            # The committed state lives in the workers: with two of them one can be spared.
            if match and int(match[1]) >= 2:
                self.formed.set()


def run(steps, every):
    # A world of another size would add up in another way, and round differently.
    command = [hvdrun_path(), "-np", "3", "--min-np", "3", "--restarts", "1000000"]
    command += [sys.executable, PROGRAM, "torch", str(steps)]
    begin = time.monotonic()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    worlds = Worlds(job.stderr)
    kills = 0
    while every is not None and job.poll() is None:
        time.sleep(every)
        # One kill for each world: the next one is formed by those that hold the state.
        if worlds.formed.is_set() and len(workers_of(steps)) >= 2:
            worlds.formed.clear()
            os.kill(random.choice(workers_of(steps)), signal.SIGKILL)
            kills += 1
    said = {line.split("weights ", 1)[1] for line in job.stdout if "weights" in line}
    job.wait()
    seconds = time.monotonic() - begin
    print(f"{kills} kills, {worlds.count} worlds, {seconds:.0f} s, exit code {job.returncode}")
    return {one.rsplit(" ", 2)[0] for one in said}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--every", type=float, default=2.0)
    arguments = parser.parse_args()
    undisturbed = run(arguments.steps, None)
    disturbed = run(arguments.steps, arguments.every)
    print("equal to the bit" if undisturbed == disturbed and len(disturbed) == 1 else "DIFFERENT")
    return 0 if undisturbed == disturbed else 1


if __name__ == "__main__":
    sys.exit(main())
