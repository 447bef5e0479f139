# hvd.run(): jobs that a program starts, and the results that their ranks send back. One process.
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

import hvd

LIMIT = 120  # of what normally ends at once


def place_of(factor, offset=0):
    hvd.init()
    return factor * hvd.rank() + offset, hvd.size()


def fail_on_rank_1():
    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("nothing there")


def test_run_gives_the_results_of_all_ranks(capfd):
    assert hvd.run(place_of, (10,), {"offset": 1}, num_proc=2) == [(1, 2), (11, 2)]
    assert "warning" not in capfd.readouterr().err
    assert hvd.run(place_of, args=[2], np=1, hosts="localhost:1") == [(0, 1)]


def test_run_raises_the_error_of_the_job():
    with pytest.raises(hvd.RunError, match="nothing there"):
        hvd.run(fail_on_rank_1, num_proc=2)
    with pytest.raises(hvd.RunError, match="exit code"):
        hvd.run(place_of, (1,), num_proc=2, hosts="localhost:0")


def test_a_function_that_needs_cloudpickle_says_so(monkeypatch):
    monkeypatch.setattr("hvd._pickling.has_cloudpickle", False)
    with pytest.raises(hvd.RunError, match=r"lambda.*pip install cloudpickle"):
        hvd.run(lambda: 1, num_proc=1)
    program = (
        "import hvd, hvd._pickling\n"
        "hvd._pickling.has_cloudpickle = False\n"
        "def train(): pass\n"
        "hvd.run(train, num_proc=1)\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 1
    assert "a program that is no file. With cloudpickle it can" in ended.stderr


# --- results that are not there, or of former worlds ----------------------------------------------


def leave_without_result(ranks):
    hvd.init()
    rank = hvd.rank()
    if rank in ranks:
        hvd.shutdown()
        sys.exit(0)
    return rank


def test_a_rank_without_a_result_is_named():
    with pytest.raises(hvd.RunError, match="no result came from rank 0: "):
        hvd.run(leave_without_result, ([0],), num_proc=3)
    with pytest.raises(hvd.RunError, match="no result came from ranks 1, 2: "):
        hvd.run(leave_without_result, ([1, 2],), num_proc=3)
    with pytest.raises(hvd.RunError, match="no rank has given a result"):
        hvd.run(leave_without_result, ([0, 1],), num_proc=2)


def shut_down_on(ranks):
    hvd.init()
    rank = hvd.rank()
    hvd.barrier()
    if rank in ranks:
        hvd.shutdown()
    return rank


def test_a_rank_may_shut_down_before_its_function_returns():
    assert hvd.run(shut_down_on, ([0],), num_proc=2) == [0, 1]
    assert hvd.run(shut_down_on, ([0, 1],), num_proc=2) == [0, 1]


def work_without_hvd():
    return int(os.environ["HVD_RANK"])


def test_a_function_needs_no_world():
    assert hvd.run(work_without_hvd, num_proc=2) == [0, 1]


def train(lost_rank, how, shuts_down):
    hvd.init()
    first_rank = hvd.rank()
    state = hvd.elastic.ObjectState(step=0)

    @hvd.elastic.run
    def loop(state):
        while state.step < 6:
            if (state.step, first_rank, hvd.generation()) == (3, lost_rank, 1):
                if how == "raise":
                    raise KeyError("of the first world")
                os.kill(os.getpid(), signal.SIGKILL)
            state.step += 1
            state.commit()

    loop(state)
    result = hvd.generation(), hvd.rank(), hvd.size()
    if shuts_down:
        hvd.shutdown()
    return result


WAYS = [
    (rank, how, shuts_down)
    for rank in range(3)
    for how, shuts_down in (("raise", False), ("raise", True), ("kill", True))
]
BY_DAY = [(0, "raise", False), (1, "raise", True), (2, "kill", True), (0, "kill", True)]


@pytest.mark.parametrize(
    ("lost_rank", "how", "shuts_down"),
    [
        *BY_DAY,
        *(pytest.param(*way, marks=pytest.mark.nightly) for way in WAYS if way not in BY_DAY),
    ],
)
def test_the_results_of_an_elastic_job_are_those_of_its_last_world(lost_rank, how, shuts_down):
    results = hvd.run(
        train,
        (lost_rank, how, shuts_down),
        num_proc=3,
        min_num_proc=2,
        hosts="localhost:3",
        arguments=["--restarts", "0"],
    )
    assert results == [(2, 0, 2), (2, 1, 2)]


# --- the end of the program -----------------------------------------------------------------------

CALLER = """
import os, signal, sys
import hvd

def stay(folder):
    def leave(number, frame):
        with open(os.path.join(folder, os.environ["HVD_RANK"]), "w"):
            os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    print("up", flush=True)
    while True:
        signal.pause()

if __name__ == "__main__":
    hvd.run(stay, sys.argv[1:], num_proc=2)
"""


@pytest.mark.parametrize("kernel", ["new", "old"])
@pytest.mark.parametrize(
    ("number", "kill"),
    [
        (signal.SIGKILL, os.kill),
        (signal.SIGTERM, os.kill),
        (signal.SIGTERM, os.killpg),
        (signal.SIGINT, os.kill),
        (signal.SIGINT, os.killpg),
    ],
)
def test_the_job_ends_with_the_program(number, kill, kernel, tmp_path):
    command = [sys.executable, str(tmp_path / "caller.py"), str(tmp_path)]
    if kernel == "old":
        filtered = os.path.join(os.path.dirname(hvd.launch.hvdrun_path()), "hvd_without_calls")
        if not os.access(filtered, os.X_OK):
            pytest.skip("there is no program that takes calls away from the kernel")
        command = [filtered, "pidfd_open", *command]
    (tmp_path / "caller.py").write_text(CALLER, encoding="utf-8")
    # hvdrun is in the same process group, and the others end with hvdrun.
    caller = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    limit = threading.Timer(LIMIT, os.killpg, (caller.pid, signal.SIGKILL))
    limit.start()
    try:
        ups = [caller.stdout.readline() for _ in range(2)]
        if kernel == "old" and not any(ups) and caller.wait(LIMIT) == 77:
            pytest.skip("this kernel takes no filter for system calls")
        assert sorted(ups) == ["[0]<stdout>:up\n", "[1]<stdout>:up\n"]
        kill(caller.pid, number)
        # Both streams have ended when all processes of the job have.
        caller.communicate(timeout=LIMIT)
    except BaseException:
        os.killpg(caller.pid, signal.SIGKILL)
        caller.communicate()
        raise
    finally:
        limit.cancel()
    assert caller.returncode == -number
    # Each worker had the time to leave.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "caller.py"]


# --- standard streams -----------------------------------------------------------------------------

PROGRAM_WITHOUT_STREAMS = """
import os, sys
import hvd

def work(caller, fails):
    hvd.init()
    print("last words", file=sys.stderr, flush=True)
    if fails:
        sys.exit(3)
    files = [f"/proc/{caller}/fd/{number}" for number in range(3)]
    return [os.readlink(file) for file in files if os.path.lexists(file)]

if __name__ == "__main__":
    targets, = hvd.run(work, (os.getpid(), False))
    taken = any(kind in target for kind in ("socket:", "pidfd") for target in targets)
    try:
        hvd.run(work, (os.getpid(), True))
    except hvd.RunError as error:
        with open(sys.argv[1], "w") as file:
            print(taken, "last words" in str(error), file=file)
"""


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_the_program_needs_no_standard_streams(streams, tmp_path):
    program, result = tmp_path / "program.py", tmp_path / "result"
    program.write_text(PROGRAM_WITHOUT_STREAMS, encoding="utf-8")
    command = f'exec "$0" "$@" {streams}'
    subprocess.run(
        ["sh", "-c", command, sys.executable, str(program), str(result)],
        capture_output=True,
        timeout=LIMIT,
        check=True,
    )
    assert result.read_text(encoding="utf-8") == "False True\n"


# --- modules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["hvd/__init__.py", "pickle.py", "run_test.py"])
def test_workers_import_nothing_from_their_working_directory(module, tmp_path, monkeypatch):
    (tmp_path / "hvd").mkdir()
    (tmp_path / module).write_text("import os; os.mkdir('imported')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert hvd.run(place_of, (10,), num_proc=2) == [(0, 2), (10, 2)]
    assert not (tmp_path / "imported").exists()


PROGRAM_WITH_OWN_PATH = """
import os, sys
sys.path.append(os.environ["TEST_FOLDER"])
import hvd
if __name__ == "__main__":
    print(hvd.run(os.getcwd))
"""


def test_workers_find_hvd_where_the_program_does(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM_WITH_OWN_PATH, encoding="utf-8")
    folder = os.path.dirname(os.path.dirname(os.path.abspath(hvd.__file__)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TEST_FOLDER"] = folder
    job = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=tmp_path,
        env=environment,
    )
    assert job.stdout == f"{[str(tmp_path)]}\n", job.stderr


# --- the port -------------------------------------------------------------------------------------


def port_of_job():
    # os.environ has it no more when the function is called.
    with open(f"/proc/{os.getpid()}/environ", encoding="utf-8") as file:
        return int(file.read().split("HVD_RUN_PORT=")[1].split("\0")[0])


def test_the_port_is_one_of_the_range(monkeypatch):
    ports = range(23040, 23060)
    text = f"{ports[0]}-{ports[-1]}"
    (port,) = hvd.run(port_of_job, arguments=[f"--port-range={text}"])
    assert port in ports
    # One that is taken is passed over.
    with socket.create_server(("", port)):
        monkeypatch.setenv("HVD_PORT_RANGE", text)
        (other,) = hvd.run(port_of_job)
    assert other in ports and other != port
    with pytest.raises(hvd.RunError, match="port-range"):
        hvd.run(port_of_job, arguments=["--port-range", "no range"])


# --- Horovod's arguments --------------------------------------------------------------------------


def test_the_arguments_are_those_of_horovod_in_its_order():
    names = """func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range
        hosts hostfile host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache
        output_filename verbose use_gloo use_mpi mpi_args network_interface network_interfaces
        executable np min_np max_np"""
    parameters = inspect.signature(hvd.run).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == names.split()


def test_arguments_that_mean_nothing_here_are_taken_and_mpi_is_refused():
    ignored = {"disable_cache": True, "use_gloo": True, "use_mpi": False, "verbose": 2}
    assert hvd.run(place_of, (1,), np=1, min_np=1, max_np=1, **ignored) == [(0, 1)]
    for interfaces in ({"network_interface": "lo"}, {"network_interfaces": ["lo"]}):
        assert hvd.run(place_of, (1,), np=2, **interfaces) == [(0, 2), (1, 2)]
    for mpi in ({"use_mpi": True}, {"mpi_args": "-x PATH"}):
        with pytest.raises(hvd.RunError, match="MPI is not in this version"):
            hvd.run(place_of, (1,), num_proc=1, **mpi)
