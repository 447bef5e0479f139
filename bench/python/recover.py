# The cost of a lost worker and of a new host for a job in Python, in turns with others: an
# hvd.torch job (TorchState), the same job in C++ (elastic_steps of the tests), and the same program
# on torch's gloo, which torchrun starts again from a checkpoint that rank 0 writes at each step.
# See ./run.
#
#   kill   from the kill of a worker to the next committed step of the others
#   grow   a second host comes, with as many workers (hvd: as many slots more): how long there is no
#          commit
#
# torchrun looks at its workers every 0.1 s, and closes its first rendezvous after 1 s, so that its
# own defaults of 5 s and 30 s, where it has these, are not what is measured.
import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
STATE = 1_000_000  # bytes
STEP = 0.001  # seconds of each step beside what hvd does
# No output is redirected, as is the default. torchrun of torch 1.13 fails to read its own default
# under Python 3.11; this says it for a local rank 9 that does not exist.
AS_USUAL = ("--redirects", "9:1", "--tee", "9:1")


def microseconds():
    return time.monotonic_ns() // 1000


class Steps:
    """The work of a worker in Python in each step, and its log, which is that of elastic_steps."""

    def __init__(self, folder, worker):
        self.orders = folder / "orders" / f"{worker}.step"
        self.until = folder / "until"
        (folder / "log").mkdir(exist_ok=True)
        self.log = open(folder / "log" / f"{worker}.{microseconds()}.log", "w", buffering=1)

    def obey(self):
        if self.orders.exists():
            self.orders.unlink()
            self.log.write(f"{microseconds()} obeys step\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def committed(self, step, size):
        self.log.write(f"{microseconds()} commit {step} {size}\n")


def work_on_hvd(folder):
    import torch

    import hvd.torch as hvd

    hvd.init()
    model = torch.nn.Linear(STATE // 4, 1, bias=False)
    state = hvd.elastic.TorchState(model=model, step=0)
    steps = Steps(folder, os.environ["HVD_WORKER"])
    gradients = torch.ones(1024)

    @hvd.elastic.run
    def train(state):
        ends = False
        while not ends:
            steps.obey()
            time.sleep(STEP)
            gradients.fill_(float(steps.until.exists()))
            hvd.allreduce_(gradients, name="gradients", op=hvd.Max)
            ends = gradients[0].item() > 0
            state.step += 1
            state.commit()
            steps.committed(state.step, hvd.size())

    train(state)


def work_on_torchrun(folder):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    steps = Steps(folder, f"localhost#{dist.get_rank()}")
    model = torch.nn.Linear(STATE // 4, 1, bias=False)
    checkpoint, step = folder / "checkpoint", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    gradients = torch.ones(1024)
    ends = False
    while not ends:
        steps.obey()
        time.sleep(STEP)
        gradients.fill_(float(steps.until.exists()))
        dist.all_reduce(gradients, op=dist.ReduceOp.MAX)
        ends = gradients[0].item() > 0
        step += 1
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "step": step}, folder / "new")
            os.replace(folder / "new", checkpoint)
        steps.committed(step, dist.get_world_size())
    dist.destroy_process_group()


def lines(folder, worker):
    found = []
    for file in (folder / "log").glob(f"localhost#{worker}.*"):
        for line in file.read_text().splitlines():
            moment, *words = line.split()
            found.append((int(moment), words))
    return sorted(found)


def commits(folder, worker):
    """Of a worker, from step to microsecond."""
    return {int(words[1]): at for at, words in lines(folder, worker) if words[0] == "commit"}


def commits_of_size(folder, size):
    """When the worker with rank 0 committed in worlds of this size, microseconds."""
    return [
        at for at, words in lines(folder, 0) if words[0] == "commit" and words[2:] == [str(size)]
    ]


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the job does not come on")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """A job of one of the sides, in a folder of its own."""

    def __init__(self, side, folder, workers, build):
        self.side, self.folder, self.workers, self.bin = side, folder, workers, build / "bin"
        (folder / "orders").mkdir()
        self.hosts = folder / "hosts"
        self.hosts.write_text(f"localhost:{workers}\n")
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.started = []

    def command(self, grows):
        if self.side == "torchrun":
            elastic = [
                *("--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_id", "recover"),
                *("--rdzv_endpoint", self.endpoint, "--rdzv_conf", "last_call_timeout=1"),
            ]
            return [
                *(sys.executable, "-m", "torch.distributed.run", *(elastic if grows else [])),
                *("--nproc_per_node", self.workers, "--max_restarts", "3"),
                *("--monitor_interval", "0.1", "--log_dir", self.folder / "logs", *AS_USUAL),
                *(__file__, "--work-on-torchrun", self.folder),
            ]
        program = [sys.executable, __file__, "--work-on-hvd", self.folder]
        if self.side == "C++":
            program = [self.bin / "elastic_steps", "--state", STATE, "--step", int(1e6 * STEP)]
            for name in ("log", "orders", "until"):
                program += [f"--{name}", self.folder / name]
        size = ["-np", self.workers]
        if grows:
            script = self.folder / "discover"
            script.write_text(f"#!/bin/sh\ncat {self.hosts}\n")
            script.chmod(0o755)
            size = ["--host-discovery-script", script]
        return [self.bin / "hvdrun", *size, "--min-np", "1", *program]

    def start(self, grows=False):
        self.started.append(
            subprocess.Popen(
                [str(word) for word in self.command(grows)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def add_host(self):
        if self.side == "torchrun":
            self.start(grows=True)
        else:
            self.hosts.write_text(f"localhost:{2 * self.workers}\n")

    def end(self):
        (self.folder / "until").touch()
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()


def kill(job):
    """Milliseconds from the kill to the next commit of a worker that is left."""
    folder = job.folder
    job.start()
    wait_for(lambda: len(commits(folder, 0)) > 100)
    (folder / "orders" / "localhost#1.step").write_text("kill")

    def killed():
        return next((at for at, words in lines(folder, 1) if words[0] == "obeys"), None)

    wait_for(killed)
    last = max(step for step, at in commits(folder, 1).items() if at <= killed())
    wait_for(lambda: last + 1 in commits(folder, 0))
    return (commits(folder, 0)[last + 1] - killed()) / 1000


def grow(job):
    """Milliseconds between the last commit of the small world and the first of the large one."""
    folder = job.folder
    job.start(grows=True)
    wait_for(lambda: len(commits(folder, 0)) > 100)
    job.add_host()
    wait_for(lambda: commits_of_size(folder, 2 * job.workers))
    after = commits_of_size(folder, 2 * job.workers)[0]
    return (after - max(commits_of_size(folder, job.workers))) / 1000


def once(change, side, workers, build):
    with tempfile.TemporaryDirectory() as name:
        job = Job(side, pathlib.Path(name), workers, build)
        try:
            return change(job)
        finally:
            job.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--change", choices=("kill", "grow"), default="kill")
    parser.add_argument("--sides", default="C++,Python", help="of C++, Python and torchrun")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--json", action="store_true", help="print all times, in ms, as JSON")
    parser.add_argument("--work-on-hvd", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--work-on-torchrun", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work_on_hvd:
        return work_on_hvd(given.work_on_hvd)
    if given.work_on_torchrun:
        return work_on_torchrun(given.work_on_torchrun)
    if given.change == "grow" and "C++" in given.sides:
        parser.error("--change grow: the log of the C++ program has no size of the world")
    times = {side: [] for side in given.sides.split(",")}
    for _ in range(given.rounds):
        for side, own in times.items():
            own.append(once(globals()[given.change], side, given.workers, given.build))
    if given.json:
        print(json.dumps(times))
        return
    what = {"kill": "kill to next step", "grow": "no commit while hosts come"}[given.change]
    for side, own in times.items():
        print(f"{what}, {side:8s} {statistics.median(own):8.1f} ms, least {min(own):.1f}")


if __name__ == "__main__":
    main()
