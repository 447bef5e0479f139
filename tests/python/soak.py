# By hand: a TorchState job under a kill every few seconds, whose weights must equal those of an
# undisturbed run to the bit.
#
#   PYTHONPATH=build/release/python python3 tests/python/soak.py [--steps N] [--every SECONDS]
import argparse
import os
import random
import signal
import subprocess
import sys
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


def run(steps, every):
    command = [hvdrun_path(), "-np", "3", "--min-np", "2", "--restarts", "1000000"]
    command += [sys.executable, PROGRAM, "torch", str(steps)]
    begin = time.monotonic()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    kills = 0
    while job.poll() is None:
        if every is None:
            job.wait()
            break
        time.sleep(every)
        alive = workers_of(steps)
        # The committed state lives in the workers: one of them is left alone.
        if len(alive) >= 2:
            os.kill(random.choice(alive), signal.SIGKILL)
            kills += 1
    said = {line.split("weights ", 1)[1] for line in job.stdout if "weights" in line}
    print(f"{kills} kills, {time.monotonic() - begin:.0f} s, exit code {job.returncode}")
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
