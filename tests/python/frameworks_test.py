# Frameworks that bring their own loop, over the backend, beside gloo. For scripts/python-matrix.
import os
import subprocess
import sys

import pytest

import hvd

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "framework_program.py")
LIMIT = 300


def weights(kind, backend, directory):
    command = [hvd.launch.hvdrun_path(), "-np", "2", sys.executable, PROGRAM]
    job = subprocess.run(
        [*command, kind, backend, str(directory)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    said = [line.split(":", 1)[1] for line in job.stdout.splitlines() if "weights" in line]
    assert len(said) == 2, job.stdout
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize(
    ("kind", "package"),
    [("lightning", "lightning"), ("accelerate", "accelerate"), ("trainer", "transformers")],
)
def test_a_framework_trains_as_over_gloo(kind, package, tmp_path):
    pytest.importorskip(package)
    assert weights(kind, "hvd", tmp_path) == weights(kind, "gloo", tmp_path)
