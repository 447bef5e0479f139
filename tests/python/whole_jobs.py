# Elastic jobs of two workers whose program is a text, and the programs that pages show.
import itertools
import os
import re
import subprocess
import sys

import hvd

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 280
# Sums have the same bits in each run only on one thread.
THREADS = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}


# Asks for one worker, or for two where there is one, and commits until the world has changed.
RESIZE = """
import subprocess, time
from hvd.launch import hvdrun_path


def resize(state):
    if hvd.rank() == 0:
        command = [hvdrun_path(), "scale", str(3 - hvd.size()), os.environ["HVD_JOB_ID"]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    while True:
        state.commit()
        time.sleep(0.1)
"""


def that_resizes(text):
    """The program, which resizes its world in the steps in which it would kill a worker."""
    kill = r"if hvd.rank\(\) == .*\n *os.kill\(.*\)"
    assert len(re.findall(kill, text)) == 1
    return RESIZE + re.sub(kill, "resize(state)", text)


def program_of(page):
    """The first program in Python that a page shows."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as text:
        return text.read().split("```python\n")[1].split("```")[0]


def output_of(text, tmp_path, *arguments, flags="--min-np 2 --restarts 9"):
    """What the workers print. Up to nine of them may be killed and started again."""
    program = tmp_path / "train.py"
    program.write_text(text)
    flags = f"-np 2 {flags} --tag-output none"
    command = [hvd.launch.hvdrun_path(), *flags.split(), sys.executable, str(program)]
    job = subprocess.run(
        [*command, *(str(one) for one in arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **THREADS},
        cwd=tmp_path,  # where programs leave files
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout


def weights_of(text, tmp_path, *arguments):
    """The weights that rank 0 prints in hexadecimal digits, and the number of the last world."""
    bits, generation = output_of(text, tmp_path, *arguments).split()
    return bits, int(generation)


def assert_kills_change_no_bit(text, tmp_path):
    """That 60 steps end with the same weights if workers are killed in steps 10, 25 and 40."""
    undisturbed, generation = weights_of(text, tmp_path, 60)
    assert generation == 1
    killed, generation = weights_of(text, tmp_path, 60, 10, 25, 40)
    assert generation >= 4
    assert killed == undisturbed


def sizes_of(steps):
    """The sizes of the worlds, one after the other, that made steps."""
    return [size for size, _ in itertools.groupby(len(ranks) for ranks in steps)]


def assert_drawn_once(steps, samples, epochs):
    """That steps, each with the batches of all ranks, draw each sample once in each epoch.

    The last batches of an epoch may be filled up, with samples that come twice.
    """
    left = set(range(samples))
    for batches in steps:
        drawn = [number for batch in batches for number in batch]
        assert left & set(drawn), (batches, left)
        assert len(drawn) == len(left & set(drawn)) or left <= set(drawn), (batches, left)
        left -= set(drawn)
        if not left:
            epochs -= 1
            left = set(range(samples))
    assert epochs == 0 and len(left) == samples, (epochs, left)
