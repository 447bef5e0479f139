# How long from the kill of a worker to the next committed step of the other one: a TorchState job
# beside the same job in C++ (elastic_steps of the tests), in turns. See ./run.
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
BIN = ROOT / "build" / "release" / "bin"
STATE = 1_000_000  # bytes
STEP = 0.001  # seconds of each step beside what hvd does


def microseconds():
    return time.monotonic_ns() // 1000


def work(folder):
    """A worker in Python. It writes what elastic_steps writes, and obeys one order."""
    import torch

    import hvd.torch as hvd

    hvd.init()
    model = torch.nn.Linear(STATE // 4, 1, bias=False)
    state = hvd.elastic.TorchState(model=model, step=0)
    worker = os.environ["HVD_WORKER"]
    order, until = folder / "orders" / f"{worker}.step", folder / "until"
    (folder / "log").mkdir(exist_ok=True)
    log = open(folder / "log" / f"{worker}.{microseconds()}.log", "w", buffering=1)
    gradients = torch.ones(1024)

    @hvd.elastic.run
    def train(state):
        ends = False
        while not ends:
            if order.exists():
                order.unlink()
                log.write(f"{microseconds()} obeys step\n")
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(STEP)
            gradients.fill_(float(until.exists()))
            hvd.allreduce_(gradients, name="gradients", op=hvd.Max)
            ends = gradients[0].item() > 0
            state.step += 1
            state.commit()
            log.write(f"{microseconds()} commit {state.step}\n")

    train(state)


def lines(folder, worker):
    found = []
    for file in (folder / "log").glob(f"localhost#{worker}.*"):
        for line in file.read_text().splitlines():
            moment, *words = line.split()
            found.append((int(moment), words))
    return sorted(found)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the job does not come on")
        time.sleep(0.02)


def recovery(command):
    """Milliseconds from the kill to the next commit of the worker that is left."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "orders").mkdir()
        words = [str(word).replace("FOLDER", name) for word in command]
        job = subprocess.Popen(
            [BIN / "hvdrun", "-np", "2", "--min-np", "1", *words], stderr=subprocess.DEVNULL
        )

        def commits(worker):
            return {
                int(words[1]): at for at, words in lines(folder, worker) if words[0] == "commit"
            }

        def kill():
            return next((at for at, words in lines(folder, 1) if words[0] == "obeys"), None)

        wait_for(lambda: len(commits(0)) > 100)
        (folder / "orders" / "localhost#1.step").write_text("kill")
        wait_for(kill)
        last = max(step for step, at in commits(1).items() if at <= kill())
        wait_for(lambda: last + 1 in commits(0))
        milliseconds = (commits(0)[last + 1] - kill()) / 1000
        (folder / "until").touch()
        job.wait()
        return milliseconds


def main():
    common = ["--log", "FOLDER/log", "--orders", "FOLDER/orders", "--until", "FOLDER/until"]
    size = ["--state", STATE, "--step", int(1e6 * STEP)]
    commands = {
        "C++": [BIN / "elastic_steps", *common, *size],
        "Python": [sys.executable, __file__, "FOLDER"],
    }
    times = {name: [] for name in commands}
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10):
        for name, command in commands.items():
            times[name].append(recovery(command))
    for name, own in times.items():
        print(
            f"kill to next step, {name:6s} {statistics.median(own):7.1f} ms, least {min(own):.1f}"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--rounds":
        main()
    else:
        work(pathlib.Path(sys.argv[1]))
