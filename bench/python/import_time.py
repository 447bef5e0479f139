# The CPU time that the import of each adapter takes beyond that of its framework. Adapters whose
# framework is not installed are left out. As in an installed package, the bytecode is there: the
# first import, which compiles it, does not count. See ./run.
#
#   import_time.py [--rounds 5]
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile

import turns

TEXT = """
import time, {framework}{first}
begin = time.process_time()
import hvd.{adapter}
print(1000 * (time.process_time() - begin))
"""
# hvd itself is part of it; NumPy is not, which each framework needs.
FIRST = {"keras": ", numpy; keras.backend.backend()"}


def time_of(adapter):
    text = TEXT.format(framework=adapter, adapter=adapter, first=FIRST.get(adapter, ""))
    command = [sys.executable, "-c", text]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def keep_bytecode_in(folder):
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


def main():
    rounds = turns.arguments(rounds=5).rounds
    there = [
        adapter
        for adapter in ("torch", "tensorflow", "jax", "keras", "mxnet")
        if importlib.util.find_spec(adapter) is not None
    ]
    # Keras is there for one that is.
    backends = [name for name in ("tensorflow", "torch", "jax") if name in there]
    os.environ.setdefault("KERAS_BACKEND", (backends or ["numpy"])[0])
    with tempfile.TemporaryDirectory() as bytecode:
        keep_bytecode_in(bytecode)
        for adapter in there:
            try:
                _, *times = (time_of(adapter) for _ in range(rounds + 1))
            except subprocess.CalledProcessError as error:
                print(f"import hvd.{adapter:12s} {error.stderr.strip().splitlines()[-1]}")
                continue
            print(
                f"import hvd.{adapter:12s} {statistics.median(times):7.1f} ms, "
                f"least {min(times):7.1f}"
            )


main()
