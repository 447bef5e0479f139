# Frameworks that bring their own loop, over the backend, beside gloo. For scripts/python-matrix.
import os
import subprocess
import sys

import pytest

import hvd

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "framework_program.py")
LIMIT = 300


def weights(kind, backend, directory):
    workers = 4 if kind == "uneven" else 2
    command = [hvd.launch.hvdrun_path(), "-np", str(workers), sys.executable, PROGRAM]
    job = subprocess.run(
        [*command, kind, backend, str(directory)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    said = [line.split(":", 1)[1] for line in job.stdout.splitlines() if "weights" in line]
    assert len(said) == workers, job.stdout
    assert len(set(said)) == 1, said
    return said[0].split()[1]


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("lightning", "lightning"),
        ("uneven", "lightning"),
        ("accelerate", "accelerate"),
        ("trainer", "transformers"),
    ],
)
def test_a_framework_trains_as_over_gloo(kind, package, tmp_path):
    pytest.importorskip(package)
    ours, theirs = (float(weights(kind, backend, tmp_path)) for backend in ("hvd", "gloo"))
    # Sums of four ranks depend on their order.
    assert ours == (pytest.approx(theirs, abs=1e-5) if kind == "uneven" else theirs)
