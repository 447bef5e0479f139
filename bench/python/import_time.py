# The CPU time that the import of each adapter takes beyond that of its framework. Adapters whose
# framework is not installed are left out. See ./run.
#
#   import_time.py [--rounds 5]
import importlib.util
import statistics
import subprocess
import sys

import turns

TEXT = """
import time, {framework}{first}
begin = time.process_time()
import hvd.{adapter}
print(1000 * (time.process_time() - begin))
"""
# hvd itself is part of it; NumPy is not, which each framework needs.
FIRST = {"keras": ", numpy; keras.backend.backend()"}


def main():
    rounds = turns.arguments(rounds=5).rounds
    for adapter in ("torch", "tensorflow", "jax", "keras", "mxnet"):
        if importlib.util.find_spec(adapter) is None:
            continue
        text = TEXT.format(framework=adapter, adapter=adapter, first=FIRST.get(adapter, ""))
        times = [
            float(
                subprocess.run([sys.executable, "-c", text], check=True, capture_output=True).stdout
            )
            for _ in range(rounds)
        ]
        print(
            f"import hvd.{adapter:12s} {statistics.median(times):7.1f} ms, least {min(times):7.1f}"
        )


main()
