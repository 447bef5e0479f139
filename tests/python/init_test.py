# hvd.init(): jobs whose ranks find the process sets that they ask for.
import os
import subprocess
import sys

import pytest

import hvd

LIMIT = 120  # of what normally ends at once


def run_ranks(text, number=2, **environment):
    """The lines that each rank prints with this program, in the order of ranks."""
    return run_python("-c", text, number=number, **environment)


def run_python(*arguments, number=2, **environment):
    command = [hvd.launch.hvdrun_path(), "-np", str(number), sys.executable, *arguments]
    job = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env=os.environ | environment,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    said = [[] for _ in range(number)]
    for line in job.stdout.splitlines():
        rank, words = line[1:].split("]<stdout>:", 1)
        said[int(rank)].append(words)
    return said


STARTED_BY_PYTHON = """
import multiprocessing, os, subprocess, sys
import hvd

def train():
    try:
        hvd.init()
    except hvd.errors.InitError as error:
        print(error, flush=True)
    else:
        print(hvd.rank(), "of", hvd.size(), flush=True)

def start(how):
    if how == "spawn" or how == "forkserver":
        child = multiprocessing.get_context(how).Process(target=train)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    link = int(os.environ["HVD_WORKER_FD"])
    options = {"close": {}, "keep": {"close_fds": False}, "pass": {"pass_fds": [link]}}[how]
    sys.exit(subprocess.run([sys.executable, __file__, "train"], **options).returncode)

if __name__ == "__main__":
    train() if sys.argv[1] == "train" else start(sys.argv[1])
"""


def run_started_by_python(directory, how):
    program = directory / "program.py"
    program.write_text(STARTED_BY_PYTHON, encoding="utf-8")
    return run_python(str(program), how)


@pytest.mark.parametrize("how", ["keep", "pass"])
def test_a_worker_can_be_a_child_of_python_that_keeps_the_link(tmp_path, how):
    assert run_started_by_python(tmp_path, how) == [["0 of 2"], ["1 of 2"]]


@pytest.mark.parametrize("how", ["close", "spawn", "forkserver"])
def test_a_child_without_the_link_says_how_python_keeps_it(tmp_path, how):
    for lines in run_started_by_python(tmp_path, how):
        assert "the link to hvdrun is closed in this process" in lines[0], lines
        assert "Python's subprocess does so without close_fds=False" in lines[0], lines


def test_a_process_set_may_be_given_twice():
    text = """
import hvd
first, second, pair = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet([1])
hvd.init(process_sets=[first, second, pair])
print(first.process_set_id, second.process_set_id, pair.process_set_id, flush=True)
"""
    assert run_ranks(text) == [["1 1 2"]] * 2


@pytest.mark.parametrize("setting", ["", "0", "false", "1"])
def test_process_sets_can_be_added_whatever_init_was_told(setting):
    text = """
import hvd
for arguments in ({}, {"process_sets": [[1]]}, {"process_sets": "dynamic"}):
    hvd.init(**arguments)
    added = hvd.add_process_set([0])
    print(added.ranks, hvd.remove_process_set(added), flush=True)
    hvd.shutdown()
"""
    settings = {"HOROVOD_DYNAMIC_PROCESS_SETS": setting} if setting else {}
    assert run_ranks(text, **settings) == [["[0] True"] * 3] * 2


def test_groups_of_torch_can_be_made_after_init():
    pytest.importorskip("torch")
    text = """
import hvd.torch as hvd, torch, torch.distributed as dist
hvd.init()
dist.init_process_group("hvd")
group = dist.new_group([0, 1])
tensor = torch.ones(1)
if hvd.rank() < 2:
    dist.all_reduce(tensor, group=group)
alone = [dist.new_group([rank]) for rank in range(3)][hvd.rank()]
dist.all_reduce(tensor, group=alone)
print(tensor.item(), dist.get_world_size(alone), flush=True)
"""
    assert run_ranks(text, 3) == [["2.0 1"], ["2.0 1"], ["1.0 1"]]


def test_a_second_init_with_other_process_sets_is_an_error():
    text = """
import hvd

def again(**arguments):
    try:
        hvd.init(**arguments)
    except hvd.InvalidArgumentError as error:
        return "made with other options" in str(error)

hvd.init()
print(again(process_sets=[[0]]), again(process_sets_shrink=True))
print(again(), again(process_sets=[]), again(process_sets="dynamic"))
hvd.shutdown()

first, later = hvd.ProcessSet([0]), hvd.ProcessSet([0])
hvd.init(process_sets=[first])
print(again(process_sets=[[1]]), again(process_sets=[[0], [1]]))
print(again(), again(process_sets=[first]), again(process_sets=[later]))
print(again(process_sets="dynamic"))
print(later.process_set_id, hvd.size())
hvd.shutdown()
print(first.process_set_id, later.process_set_id, flush=True)
"""
    expected = [
        "True True",
        "None None None",
        "True True",
        "None None None",
        "None",
        "1 2",
        "None None",
    ]
    assert run_ranks(text) == [expected] * 2
