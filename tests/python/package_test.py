# The package as a whole: the names that the documents show, the package `horovod` in them, types,
# and the links of a build tree.
import builtins
import os
import re
import subprocess
import sys

import hvd

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs")
LIMIT = 120  # of what normally ends at once


def text_of(page):
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        return file.read()


def run_two(*program, **environment):
    """The output of two ranks of a job."""
    job = subprocess.run(
        [hvd.launch.hvdrun_path(), "-np", "2", sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **environment},
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    return [line.split(":", 1)[1] for line in sorted(job.stdout.splitlines())]


# `hvd` is the package, or hvd.torch for programs that import it under this name.
MISSING = """
import operator, sys
import hvd.torch

def is_there(root, path):
    try:
        return operator.attrgetter(path)(root) is not None
    except AttributeError:
        return False

print([path for path in sys.argv[1:] if not is_there(hvd, path) and not is_there(hvd.torch, path)])
"""


def test_a_name_in_the_documents_needs_no_further_import():
    pages = "".join(
        text_of(page) for page in ("python.md", "getting_started_python.md", "from_horovod.md")
    )
    names = set(re.findall(r"\bhvd\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", pages))
    assert {"torch.mpi_ops", "torch.elastic.sampler", "elastic.TorchState"} <= names
    # Modules that need their framework.
    others = {"tensorflow", "keras", "jax", "mxnet", "transformers", "accelerate", "lightning"}
    names = {name for name in names if name.split(".")[0] not in others}
    alone = subprocess.run(
        [sys.executable, "-c", MISSING, *names], capture_output=True, text=True, timeout=LIMIT
    )
    assert alone.stdout == "[]\n", alone.stdout + alone.stderr


def test_an_error_in_the_documents_is_in_the_module_of_errors():
    names = set(re.findall(r"`(?:hvd\.)?(\w+Error)`", text_of("python.md")))
    assert {"HvdError", "DisagreementError", "RunError"} <= names
    assert [n for n in names if not hasattr(hvd.errors, n) and not hasattr(builtins, n)] == []


USES_HOROVOD = """
import importlib.util
import horovod, horovod.torch as hvd, torch
from horovod.torch.elastic import TorchState
from horovod.torch.mpi_ops import allreduce

assert importlib.util.find_spec("horovod.torch")
hvd.init()
state = TorchState(model=torch.nn.Linear(1, 1), step=0)
total = allreduce(torch.ones(1), op=hvd.Sum).item()
print(horovod.__version__, state.step, total, horovod.run.__module__, flush=True)
"""


def test_the_package_horovod_stands_in_for_horovod(tmp_path):
    code = text_of("from_horovod.md").split("## Libraries that import horovod")[1]
    (tmp_path / "horovod").mkdir()
    code = code.split("```python\n")[1].split("```")[0]
    (tmp_path / "horovod" / "__init__.py").write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run_two("-c", USES_HOROVOD, PYTHONPATH=path) == ["0.28.1 0 2.0 hvd.launch"] * 2


def test_a_program_with_types_runs():
    assert run_two(os.path.join(HERE, "typed_program.py")) == ["typed 3 1"] * 2


def test_the_package_holds_no_module_whose_source_is_gone():
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(os.path.dirname(hvd.__file__))
        for name in names
    ]
    assert [path for path in files if not os.path.exists(path)] == []


def test_an_hvdrun_that_cannot_be_executed_is_not_said_to_be_missing(tmp_path):
    package = tmp_path / "hvd"
    (package / "bin").mkdir(parents=True)
    for name in os.listdir(os.path.dirname(hvd.__file__)):
        if name != "bin":
            (package / name).symlink_to(os.path.join(os.path.dirname(hvd.__file__), name))
    (package / "bin" / "hvdrun").write_bytes(b"")
    job = subprocess.run(
        [sys.executable, "-c", "import hvd.launch; hvd.launch.hvdrun_path()"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    expected = f"PermissionError: {package}/bin/hvdrun exists, but cannot be executed"
    assert job.stderr.splitlines()[-1] == expected
