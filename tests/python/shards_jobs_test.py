# Training over shards in worlds of several sizes, and in one whose workers are killed and come
# back: with a deterministic sum it ends with the same bits. One process that starts hvdrun.
import json
import os
import re
import subprocess
import sys

import pytest
from whole_jobs import LIMIT, THREADS, program_of

import hvd

PROGRAM = program_of("docs/shards.md")
# Before the backward pass of a shard: workers die in the middle of two steps. Before these and at
# the end of the training the others go on only when all are there again.
DISTURB = """
import os, signal, time


def wait_for_all(state):
    while hvd.size() < 4:
        state.commit()
        time.sleep(0.05)


def is_first_time(name):
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def disturb(state, shard):
    with open("computed", "a") as file:
        file.write(f"{state.step} {shard}\\n")
    victim = {10: hvd.size() - 1, 25: 1}.get(state.step)
    if hvd.rank() == victim and shard % 2 == 1 and is_first_time(f"{state.step}"):
        os.kill(os.getpid(), signal.SIGKILL)
"""
# What stands in the program, and what comes before it.
BEFORE = {
    "@hvd.elastic.run": DISTURB + "\n\n",
    "        for shard in": "        if state.step in (25, 39):\n            wait_for_all(state)\n",
    "            loss.backward()": "            disturb(state, shard)\n",
    "        state.step += 1": "        state.sizes.append(hvd.size())\n",
    "    print(": "    print(*state.sizes)\n",
}


def replaced(text, changes):
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def job_of(text, tmp_path, *flags):
    program = tmp_path / "train.py"
    program.write_text(text)
    job = subprocess.run(
        [hvd.launch.hvdrun_path(), *flags, "--tag-output", "none", sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **THREADS},
        cwd=tmp_path,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


def digest_of(text, tmp_path, size):
    (digest,) = job_of(text, tmp_path, "-np", str(size))
    assert re.fullmatch("[0-9a-f]{64}", digest)
    return digest


def test_the_program_of_the_page_ends_with_the_same_bits_in_each_world(tmp_path):
    assert len({digest_of(PROGRAM, tmp_path, size) for size in (1, 2, 3, 4)}) == 1


@pytest.mark.nightly
def test_larger_worlds_do_too(tmp_path):
    assert len({digest_of(PROGRAM, tmp_path, size) for size in (1, 5, 8, 16)}) == 1


def test_so_does_a_job_whose_workers_are_killed_and_come_back(tmp_path):
    text = replaced(PROGRAM, {text: before + text for text, before in BEFORE.items()})
    text = replaced(text, {"step=0)": "step=0, sizes=[])"})
    flags = "-np 4 --min-np 1 --restarts 9".split()
    sizes, digest = job_of(text, tmp_path, *flags)
    assert {"10", "25"} <= set(os.listdir(tmp_path)), "nobody was killed"
    sizes = sizes.split()
    assert len(sizes) == 40 and sizes[0] == sizes[-1] == "4" and "3" in sizes, sizes
    assert digest == digest_of(PROGRAM, tmp_path, 1)

    # The victim had begun two shards, and the others redo only its shards.
    shards = [line.split()[1] for line in open(tmp_path / "computed") if line.startswith("10 ")]
    assert len(set(shards)) == 16 and len(shards) <= 16 + 4, shards


def test_a_ledger_says_which_samples_each_shard_had(tmp_path):
    for size in (2, 3):
        job_of(PROGRAM, tmp_path, "-np", str(size), "--ledger", str(tmp_path / f"of {size}"))
    two, three = ((tmp_path / f"of {size}").read_text() for size in (2, 3))
    assert two == three
    lines = [json.loads(line) for line in two.splitlines()]
    assert len(lines) == 40
    for line in lines:
        assert sorted(map(int, line["samples"])) == list(range(16))
        # The last batches of an epoch are smaller.
        assert {len(one) for one in line["samples"].values()} in ({8}, {5})
    drawn = [one for line in lines[:10] for batch in line["samples"].values() for one in batch]
    assert len(set(drawn)) == len(drawn), "a sample of an epoch has been drawn twice"


def test_without_a_deterministic_sum_bits_depend_on_the_world(tmp_path):
    text = replaced(PROGRAM, {"    deterministic=True,\n": ""})
    assert digest_of(text, tmp_path, 1) != digest_of(text, tmp_path, 3)
