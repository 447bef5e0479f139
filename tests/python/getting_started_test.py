# Does what docs/getting_started_python.md says, command by command, and runs the programs that
# other pages show whole.
import os
import shlex
import subprocess
import sys

import pytest
from whole_jobs import ROOT, program_of

import hvd


def commands_of(page):
    """Its blocks of ```sh, except those after a comment that says why they are not run."""
    commands, before, inside = [], "", False
    for line in page.read().splitlines():
        if line.startswith("```"):
            inside = not inside and line == "```sh" and not before.startswith("<!-- not run:")
        elif inside:
            commands.append(line)
        before = line
    return "\n".join(commands)


def put_command(folder, name, path):
    command = folder / name
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(path)} "$@"\n')
    command.chmod(0o755)


def test_the_page_leads_from_the_wheel_to_an_elastic_job(tmp_path):
    put_command(tmp_path, "hvdrun", hvd.launch.hvdrun_path())
    put_command(tmp_path, "python3", sys.executable)
    with open(os.path.join(ROOT, "docs", "getting_started_python.md"), encoding="utf-8") as page:
        commands = commands_of(page)
    job = subprocess.run(
        ["bash", "-eu", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    for expected in (
        "[0]<stdout>:rank 0 of 2: the average is 1.5\n",
        "[1]<stdout>:rank 1 of 2: the average is 1.5\n",
        "[0]<stdout>:weights [1.0, 1.0, 1.0, 1.0]\n",
        "[0]<stdout>:world 2 step 200 weights [1.0, 1.0, 1.0, 1.0]\n",
        "[0]<stdout>:parallel [1.0, 1.0, 1.0, 1.0]\n",
        "results [0, 10, 20]\n",
    ):
        assert expected in job.stdout, job.stdout + job.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/elastic.md"])
def test_the_first_program_of_the_page_runs_as_it_stands(page, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program_of(page) + '\nif hvd.rank() == 0:\n    print("ended at", state.step)\n')
    job = subprocess.run(
        [hvd.launch.hvdrun_path(), "-np", "2", "--min-np", "2", sys.executable, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    assert "[0]<stdout>:ended at 200\n" in job.stdout, job.stdout + job.stderr
