# By hand: jobs of frameworks on two pretend hosts, whose workers are killed one after the other for
# minutes. They must end with the bits of the job that nobody disturbs. A kill comes some seconds
# after a world was formed: the next world is formed by the worker that holds the state.
#
#   hvd-hosts run 2 -- python3 tests/python/kills.py --packages DIRECTORY [--every SECONDS]
#       [--for SECONDS] [--slots 3,1] keras jax trainer lightning
#
# DIRECTORY holds what /usr/bin/python3 needs there, as `pip install --target DIRECTORY` puts it,
# and in its folder stand-ins the libraries of scripts/cuda-stand-ins.
import argparse
import os
import random
import re
import subprocess
import sys
import time

import pytest
from soak import Worlds

import hvd

pytest.importorskip = lambda *names, **options: None  # the hosts have them
import jax_elastic_test  # noqa: E402
import keras_elastic_test  # noqa: E402
import lightning_test  # noqa: E402
import transformers_test  # noqa: E402

PYTHON, PROGRAM = "/usr/bin/python3", "/root/train.py"
HOSTS = os.environ["HVD_HOSTS"].split()
# A step takes this time at least, so that a world that was formed does some.
SLOW = """
import time, hvd.elastic
fast = hvd.elastic.State.commit

def slow(state):
    time.sleep(0.2)
    fast(state)

hvd.elastic.State.commit = slow
"""


def longer(program, first, second):
    assert first in program
    return program.replace(first, second)


PROGRAMS = {
    "keras": lambda: longer(keras_elastic_test.PROGRAM, "BATCHES = 3, 8", "BATCHES = 33, 8"),
    "jax": lambda: jax_elastic_test.PROGRAM,
    "trainer": lambda: longer(transformers_test.TRAINER, "BATCH = 2,", "BATCH = 24,"),
    "lightning": lambda: longer(lightning_test.PROGRAM, "BATCH = 2,", "BATCH = 24,"),
}
ARGUMENTS = {"jax": ["400"]}


def home_of(host):
    """The folder of a pretend host's root, as the head sees it, whose own lies beside it."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        own = next(words[3] for words in map(str.split, mounts) if words[4] == "/root")
    return os.path.join(os.path.dirname(os.path.dirname(own)), host, "root")


def place(packages):
    library = os.path.join(os.path.dirname(hvd.launch.hvdrun_path()), "../lib/libhvd.so.0")
    for host in HOSTS:
        home = home_of(host)
        subprocess.run(["cp", "-al", packages, os.path.join(home, "packages")], check=True)
        os.makedirs(os.path.join(home, "python"))
        package = os.path.dirname(hvd.__file__)
        subprocess.run(["cp", "-rL", package, library, os.path.join(home, "python")], check=True)


def kill(host):
    # In a host there are its own processes alone. The oldest one is the worker.
    command = f"pkill -KILL -o -f '^{PYTHON} {PROGRAM}'"
    subprocess.run(["ssh", host, command], check=False)


def run(name, slots, every, limit):
    """The weights in hexadecimal digits, kills, worlds, and how long it took."""
    text = PROGRAMS[name]() if every is None else SLOW + PROGRAMS[name]()
    for host in HOSTS:
        with open(os.path.join(home_of(host), "train.py"), "w", encoding="utf-8") as file:
            file.write(text)
    environment = {
        "PYTHONPATH": "/root/python:/root/packages",
        "LD_LIBRARY_PATH": "/root/python:/root/packages/stand-ins",
        "PYTHONDONTWRITEBYTECODE": "1",
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
    }
    workers = str(sum(slots))
    flags = ["-np", workers, "--min-np", workers, "--restarts", "1000000", "--tag-output", "none"]
    flags += ["-H", ",".join(f"{host}:{count}" for host, count in zip(HOSTS, slots))]
    begin = time.monotonic()
    job = subprocess.Popen(
        [hvd.launch.hvdrun_path(), *flags, PYTHON, PROGRAM, *ARGUMENTS.get(name, [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        cwd="/root",
    )
    worlds = Worlds(job.stderr)
    kills = 0
    while every is not None and job.poll() is None and time.monotonic() - begin < limit:
        if not worlds.formed.wait(1):
            continue
        time.sleep(every)
        if job.poll() is None:
            worlds.formed.clear()
            kill(random.choice(HOSTS))
            kills += 1
    said = job.stdout.read()
    code = job.wait()
    if code != 0:
        worlds.join()
        print(*worlds.last, sep="")
    bits = re.findall(r"[0-9a-f]{64,}", said)
    seconds = time.monotonic() - begin
    print(
        f"{name}: {kills} kills, {worlds.count} worlds, {seconds:.0f} s, exit code {code}",
        flush=True,
    )
    return bits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", required=True)
    parser.add_argument("--every", type=float, default=3.0)
    parser.add_argument("--for", dest="limit", type=float, default=180.0)
    parser.add_argument("--slots", default="1,1", help="workers of each host")
    parser.add_argument("programs", nargs="+", choices=PROGRAMS)
    arguments = parser.parse_args()
    slots = [int(count) for count in arguments.slots.split(",")]
    place(arguments.packages)
    differ = False
    for name in arguments.programs:
        undisturbed = run(name, slots, None, 0)
        killed = run(name, slots, arguments.every, arguments.limit)
        is_same = undisturbed == killed and len(killed) == 1
        print(f"{name}: {'equal to the bit' if is_same else 'DIFFERENT'}", flush=True)
        differ |= not is_same
    return differ


if __name__ == "__main__":
    sys.exit(main())
