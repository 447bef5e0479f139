# Whole jobs: what survives, what can be interrupted, and what is left behind. One process that
# starts hvdrun.
import os
import re
import signal
import subprocess
import sys

import pytest

import hvd

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 120  # of what normally ends at once


def run_job(*arguments, **options):
    command = [hvd.launch.hvdrun_path(), *(str(one) for one in arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, **options
    )


def program(name):
    return [sys.executable, os.path.join(HERE, name)]


def lines(job, rank):
    return [
        line.split(":", 1)[1]
        for line in job.stdout.splitlines()
        if line.startswith(f"[{rank}]<stdout>:")
    ]


# --- elastic jobs -------------------------------------------------------------------------------


def results(kind, crashes):
    flags = ["-np", 3, "--min-np", 3, "--restarts", 10]
    job = run_job(*flags, *program("elastic_program.py"), kind, 20, crashes)
    assert job.returncode == 0, job.stdout + job.stderr
    said = {lines(job, rank)[-1] for rank in range(3)}
    assert len(said) == 1, job.stdout
    text = said.pop()
    assert ("later world" in text) == (crashes > 0), job.stderr
    return text.rsplit(" ", 2)[0]


@pytest.mark.parametrize("kind", ["numpy", "torch", "ddp"])
def test_killed_workers_change_no_bit_of_the_result(kind):
    undisturbed = results(kind, 0)
    assert undisturbed.split()[0] in ("total", "weights")
    assert results(kind, 2) == undisturbed


def test_a_state_that_nobody_shares_works_alone():
    state = hvd.elastic.ObjectState(number=1, items=[1, 2])
    state.save()
    state.number = 5
    state.items.append(3)
    state.restore()
    assert state.number == 1 and state.items == [1, 2]
    state.number = 7
    state.commit()
    state.number = 8
    state.restore()
    assert state.number == 7
    with pytest.raises(ValueError, match="commit"):
        hvd.elastic.ObjectState(commit=1)


def test_the_example_learns_from_a_text():
    root = os.path.dirname(os.path.dirname(HERE))
    example = os.path.join(root, "examples", "python", "char_model.py")
    text = os.path.join(root, "docs", "python.md")
    if not os.path.exists(example):
        pytest.skip("the examples are not beside the tests")
    flags = ["-np", 2, "--min-np", 1]
    job = run_job(*flags, sys.executable, example, "--steps", 60, text)
    assert job.returncode == 0, job.stderr
    bits = re.search(r"step 60: ([0-9.]+) bits for each character", job.stdout)
    assert bits and float(bits[1]) < 5.2, job.stdout


# --- interrupts and ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    "init allreduce torch_allreduce barrier join broadcast_object allgather_object add_process_set "
    "optimizer commit run init_process_group all_reduce".split(),
)
def test_control_c_ends_every_call_that_waits(call):
    job = run_job("-np", 2, *program("interrupt_program.py"), call)
    assert re.search(r"interrupted after \d+ ms", job.stdout), job.stdout + job.stderr
    assert "came back" not in job.stdout and job.returncode != 0
    assert "abort" not in job.stderr.lower() and "SIGABRT" not in job.stderr


ENDS = {
    "work in flight": """
for index in range(100):
    handle = hvd.allreduce_async(np.ones(10000), name=str(index))
""",
    "callbacks": """
for index in range(100):
    hvd.allreduce_async(np.ones(10), name=str(index)).add_done_callback(lambda done: None)
hvd.barrier()
""",
    "a callback that raises": """
hvd.allreduce_async(np.ones(10)).add_done_callback(lambda done: 1 / 0)
hvd.barrier()
""",
    "forked children": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, range(-4, 0)) == [4, 3, 2, 1]
hvd.barrier()
""",
    "a thread that goes on": """
import threading
def work():
    while True:
        hvd.allreduce(np.ones(3), name="on and on")
threading.Thread(target=work, daemon=True).start()
hvd.barrier()
""",
}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("shutdown", [False, True])
def test_the_interpreter_ends_in_order_with(what, shutdown):
    text = "import numpy as np, hvd\nhvd.init()\n" + ENDS[what]
    if shutdown:
        text += "hvd.shutdown()\n"
    for _ in range(int(os.environ.get("HVD_TEST_REPEATS", "2"))):
        job = run_job("-np", 2, sys.executable, "-c", text)
        assert job.returncode == 0, job.stdout + job.stderr


def test_an_exception_ends_the_job():
    text = "import hvd; hvd.init(); 1 / (1 - hvd.rank()); hvd.barrier()"
    job = run_job("-np", 2, sys.executable, "-c", text)
    assert job.returncode == 1 and "ZeroDivisionError" in job.stderr


def test_the_loss_of_a_rank_is_an_exception_that_names_it():
    text = """
import os, numpy as np, hvd
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    os._exit(9)
try:
    while True:
        hvd.allreduce(np.ones(3))
except hvd.HorovodInternalError as error:
    print("lost", error.rank, error.host, bool(error.cause), error.code, flush=True)
    raise
"""
    job = run_job("-np", 2, sys.executable, "-c", text)
    assert job.returncode == 9
    # hvdrun ends the job, too: the survivor may not have had the time to say so.
    said = lines(job, 0)
    assert said in ([], ["lost 1 localhost True -9"])


# --- hvd.run() ----------------------------------------------------------------------------------


def place_of(factor, offset=0):
    hvd.init()
    return factor * hvd.rank() + offset, hvd.size()


def fail_on_rank_1():
    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("nothing there")


def test_run_gives_the_results_of_all_ranks():
    assert hvd.run(place_of, (10,), {"offset": 1}, num_proc=2) == [(1, 2), (11, 2)]
    assert hvd.run(place_of, args=[2], np=1, hosts="localhost:1") == [(0, 1)]


def test_run_raises_what_went_wrong():
    with pytest.raises(hvd.launch.RunError, match="nothing there"):
        hvd.run(fail_on_rank_1, num_proc=2)
    with pytest.raises(hvd.launch.RunError, match="exit code"):
        hvd.run(place_of, (1,), num_proc=2, hosts="localhost:0")


def test_hvdrun_is_the_one_of_the_package():
    job = run_job("--version")
    assert job.returncode == 0 and hvd.__version__ in job.stdout
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
