"""The rows of the report: what runs each of them, and what its output means.

Each source runs existing benchmarks and returns {side: values}, of which the side "hvd" is ours.
There is one value for each round, or a Spread where a benchmark prints no more than that.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile

import children
import table

HVD = "hvd"
OPEN_MPI = "Open MPI"
TORCHRUN = "torchrun"
TORCH_GLOO = "torch's Gloo"
GLOO = "Gloo"
TCP_STORE = "torch's TCPStore"
OF_TORCH = (TORCHRUN, TORCH_GLOO, TCP_STORE)
# How a rival is got.
HOW = {
    OPEN_MPI: "scripts/setup --bench and scripts/build release",
    **dict.fromkeys(OF_TORCH, "PYTHON names a Python that has torch"),
}
LONGEST = 600  # seconds of one program


class RowError(Exception):
    """A row that cannot be measured, and why."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """The median of all rounds, and the largest, in the unit of the row."""

    median: float
    worst: float


@dataclasses.dataclass(frozen=True)
class Setting:
    """The facts that sources need."""

    root: pathlib.Path
    build: pathlib.Path
    rounds: int
    python: str  # that has torch
    versions: tuple  # of what is installed, (name, version)

    def has(self, name):
        """Whether a rival is installed."""
        return ("torch" if name in OF_TORCH else name) in (GLOO, *dict(self.versions))

    def program(self, name):
        """The path of a program of the build; RowError if it is not built."""
        path = self.build / "bin" / name
        if not path.exists():
            raise RowError(f"{name} is not built (scripts/build release)")
        return path

    def environment(self):
        """For programs in Python."""
        return {"PYTHONPATH": str(self.build / "python"), "OMP_NUM_THREADS": "1"}

    def run(self, *command):
        """The output of a program, with hvd for Python in reach."""
        return children.run(command, LONGEST, self.environment())


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table; its fields are those of the schema in table.py."""

    id: str
    name: str
    source: object
    rivals: tuple = ()
    unit: str = "ms"
    better: str = "less"
    round: str = "one run"
    note: str = ""
    needs_root: bool = False
    needs_torch: bool = False


# --- sources ------------------------------------------------------------------------------------


def columns_of(text, words):
    """The columns of numbers after lines that contain these words, outside brackets."""
    lines = [line.split(words, 1)[1] for line in text.splitlines() if words in line]
    numbers = [re.findall(r"(?<!\S)\d+(?:\.\d+)?(?!\S)", line) for line in lines]
    if not lines or not all(numbers):
        raise RowError(f'no line with "{words}" and numbers in the output')
    return [[float(number) for number in column] for column in zip(*numbers)]


def named_columns(text, words):
    """The columns of columns_of() by their names, as the table's heading has them."""
    heading = next((line for line in text.splitlines() if "medians in ms" in line), None)
    if heading is None:
        raise RowError('no heading with "medians in ms" in the output')
    names = re.split(r" {2,}", heading.split("medians in ms", 1)[1].strip())
    return dict(zip(names, columns_of(text, words)))


def start(setting, workers, rival):
    """Milliseconds from the start of a launcher until its end."""
    words = ["--torch", setting.python] if rival == TORCHRUN else []
    setting.program("allreduce_once")
    with tempfile.TemporaryDirectory() as folder:
        rounds = pathlib.Path(folder) / "rounds"
        setting.run(
            *(setting.root / "bench/startup/run", "--bin", setting.build / "bin"),
            *("--np", workers, "--runs", setting.rounds, "--rounds-to", rounds, *words),
        )
        lines = [line.split()[1:] for line in rounds.read_text().splitlines()]
    sides = zip((HVD, rival), zip(*lines))
    return {side: [int(microseconds) / 1000 for microseconds in own] for side, own in sides}


def recover(setting, change, workers):
    """Milliseconds without a commit, of programs in Python."""
    sides = {"Python": HVD, TORCHRUN: TORCHRUN}
    wanted = [side for side in sides if side == "Python" or setting.has(side)]
    out = setting.run(
        *(setting.python, setting.root / "bench/python/recover.py", "--json"),
        *("--rounds", setting.rounds, "--workers", workers, "--change", change),
        *("--sides", ",".join(wanted), "--build", setting.build),
    )
    return {sides[side]: values for side, values in json.loads(out).items()}


def fault(setting, row, phase, column):
    """Milliseconds of a row of hvd_faults_bench: least, median and most stand in its output."""
    out = setting.run(
        *(setting.program("hvd_faults_bench"), "--rounds", setting.rounds, "--only", row)
    )
    lines = out.splitlines()
    at = next((i for i, line in enumerate(lines) if re.match(re.escape(row) + " {2,}", line)), None)
    if at is None:
        raise RowError(f'hvd_faults_bench printed no row "{row}"')
    if phase:
        at = next(i for i in range(at, len(lines)) if lines[i].strip().startswith(phase))
    columns = columns_of(lines[at], phase or row)
    return {HVD: Spread(columns[column + 1][0], columns[column + 2][0])}


def one_host(setting, row):
    """Milliseconds of an allreduce between 4 processes, ours, Open MPI's and Gloo's."""
    if setting.has(OPEN_MPI):
        out = setting.run(
            *("mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", 4),
            *(setting.program("hvd_one_host_bench"), setting.rounds, row),
        )
        columns = named_columns(out, row_name(out, row))
        return {side: columns[side] for side in (HVD, OPEN_MPI, GLOO)}
    out = setting.run(setting.program("hvd_collectives_bench"), 4, setting.rounds, row, "hvd,gloo")
    return dict(zip((HVD, GLOO), columns_of(out, row_name(out, row))))


def row_name(text, words):
    """The whole name of the row with these words: it is followed by two spaces or more."""
    for line in text.splitlines():
        if words in line:
            return re.split(r" {2,}", line)[0]
    raise RowError(f'no line with "{words}" in the output')


@functools.cache
def reductions(setting):
    """The medians of bench/python/reduce.py in each of several jobs, in milliseconds.

    Times differ more between jobs than in one, so a job is a round.
    """
    medians = {}
    for _ in range(setting.rounds):
        out = setting.run(
            *(setting.program("hvdrun"), "--tag-output", "none", "-np", 4, setting.python),
            *(setting.root / "bench/python/reduce.py", "--json", "--rounds", 5),
        )
        for case, times in json.loads(out).items():
            medians.setdefault(case, []).append(statistics.median(times))
    return medians


def reduction(setting, ours, theirs):
    """Two of the cases of bench/python/reduce.py, in milliseconds."""
    medians = reductions(setting)
    return {HVD: medians[ours], TORCH_GLOO: medians[theirs]}


def hosts(setting, workers, count, row):
    """Milliseconds of an allreduce between pretend hosts."""
    setting.program("hvd_hosts_bench")
    out = setting.run(
        *(setting.root / "bench/hosts/run", "--bin", setting.build / "bin"),
        *("--allreduce", setting.rounds, "--on", f"{workers} {count}", "--row", row),
    )
    return dict(zip((HVD, GLOO), columns_of(out, row_name(out, row))))


def rendezvous(setting, clients):
    """Reads a second of clients that wait for each answer."""
    values = {HVD: []}
    store = setting.root / "bench/rendezvous/tcpstore.py"
    for _ in range(setting.rounds):
        out = setting.run(setting.program("hvd_rendezvous_bench"), clients)
        values[HVD] += columns_of(out, f"hvd get, {clients} blocking clients")[0]
        if setting.has(TCP_STORE):
            out = setting.run(setting.python, store, clients)
            values.setdefault(TCP_STORE, [])
            values[TCP_STORE] += columns_of(out, f"torch TCPStore get, {clients} clients")[0]
    return values


# --- rows ---------------------------------------------------------------------------------------

ONE_HOST = "4 workers on one host"
FLAT = "the others reduce the same bytes in one flat buffer"
PRETEND = "pretend hosts of a core each; Gloo reduces the same bytes in one flat buffer"

ROWS = (
    Row(
        "startup",
        "8 workers start, reduce once and end",
        lambda setting: start(setting, 8, OPEN_MPI),
        (OPEN_MPI,),
    ),
    Row(
        "startup_torch",
        "4 workers on torch.distributed start, reduce once and end",
        lambda setting: start(setting, 4, TORCHRUN),
        (TORCHRUN,),
        needs_torch=True,
        note="the same program under both launchers, so most of it is the import of torch",
    ),
    Row(
        "kill",
        "1 of 4 workers in C++ is killed: the next commit, 100 MB",
        lambda setting: fault(setting, "worker killed, 4 on a host, much state", "", 3),
        round="one kill",
        needs_root=True,
        note="each step changes all of the state; Open MPI ends the job when a worker is lost",
    ),
    Row(
        "kill_torch",
        "1 of 4 workers in PyTorch is killed: the next commit, 1 MB",
        lambda setting: recover(setting, "kill", 4),
        (TORCHRUN,),
        round="one kill",
        needs_torch=True,
        note="torchrun starts all workers again, from a checkpoint of the last step",
    ),
    Row(
        "grow",
        "a host of 2 workers joins 3 others: no commit meanwhile, 1 MB",
        lambda setting: fault(
            setting, "host added: all train", "survivors committed nothing for", 0
        ),
        round="one host",
        needs_root=True,
        note="in C++, on pretend hosts; mpirun cannot add workers to a job",
    ),
    Row(
        "grow_torch",
        "2 workers join 2 in PyTorch: no commit meanwhile, 1 MB",
        lambda setting: recover(setting, "grow", 2),
        (TORCHRUN,),
        round="one host",
        needs_torch=True,
        note="two more slots for hvd, a second agent for torchrun, which starts all workers again",
    ),
    Row(
        "fused",
        f"161 tensors of ResNet-50, 102 MB, {ONE_HOST}",
        lambda setting: one_host(setting, "161 tensors"),
        (OPEN_MPI, GLOO),
        round="the median of 11 calls",
        note=FLAT,
    ),
    Row(
        "fused_torch",
        "161 tensors of PyTorch, 102 MB, 4 workers on one host",
        lambda setting: reduction(setting, "reduce, hvd", "reduce, gloo in flat buffers"),
        (TORCH_GLOO,),
        round="the median of 5 calls, in a job of its own",
        needs_torch=True,
        note="torch's Gloo reduces them in flat buffers of 25 MB, as DDP does",
    ),
    Row(
        "ddp",
        "a backward pass with DDP, the same tensors and workers",
        lambda setting: reduction(setting, "backward, DDP on hvd", "backward, DDP on gloo"),
        (TORCH_GLOO,),
        round="the median of 5 passes, in a job of its own",
        needs_torch=True,
    ),
    Row(
        "small",
        f"one tensor of 4 KB, {ONE_HOST}",
        lambda setting: one_host(setting, "4 KB"),
        (OPEN_MPI, GLOO),
        round="the median of 201 calls or more",
    ),
    Row(
        "small_again",
        "the same 20 times in a row, each",
        lambda setting: one_host(setting, "4,096 bytes"),
        (OPEN_MPI, GLOO),
        round="the median of 61 turns of 20 calls",
    ),
    Row(
        "many_small",
        f"1,000 tensors of 1 KB, {ONE_HOST}",
        lambda setting: one_host(setting, "1,000 tensors"),
        (OPEN_MPI, GLOO),
        round="the median of 31 calls or more",
        note=FLAT,
    ),
    Row(
        "hosts",
        "161 tensors of ResNet-50, 102 MB, 4 hosts of 1 worker",
        lambda setting: hosts(setting, 4, 4, "161 tensors"),
        (GLOO,),
        round="the median of several calls",
        needs_root=True,
        note=PRETEND,
    ),
    Row(
        "hosts_large",
        "one tensor of 64 MB, 2 hosts of 2 workers",
        lambda setting: hosts(setting, 4, 2, "64 MB"),
        (GLOO,),
        round="the median of several calls",
        needs_root=True,
        note=PRETEND,
    ),
    Row(
        "rendezvous",
        "reads of the rendezvous service, 64 clients",
        lambda setting: rendezvous(setting, 64),
        (TCP_STORE,),
        unit="/s",
        better="more",
        round="3 s",
        note="the clients of hvd are threads of one process and sign each request; those of "
        "TCPStore are a process each",
    ),
)


# --- measuring ----------------------------------------------------------------------------------


def spread_of(values, better):
    """Median and worst as the schema has them."""
    if isinstance(values, Spread):
        median, worst = values.median, values.worst
    elif not values:
        raise RowError("no round was measured")
    else:
        median = statistics.median(values)
        worst = max(values) if better == "less" else min(values)
    if median <= 0 or worst <= 0:
        raise RowError(f"a median of {median} and a worst of {worst} cannot be compared")
    return {"median": table.rounded(median), "worst": table.rounded(worst)}


def entry_of(row, rounds, values):
    """A row as the schema has it, from the values of its sides."""
    ours = spread_of(values[HVD], row.better)
    rivals = []
    for name in row.rivals:
        if name in values:
            theirs = spread_of(values[name], row.better)
            ratio = table.ratio_of(ours["median"], theirs["median"], row.better)
            rivals.append({"name": name, **theirs, "ratio": ratio})
    return {
        "id": row.id,
        "name": row.name,
        "unit": row.unit,
        "better": row.better,
        "rounds": rounds,
        "round": row.round,
        "hvd": ours,
        "rivals": rivals,
        "note": row.note,
    }


def installed(build, python):
    """The names and versions of rivals that are here; Gloo is always, as hvd is built with it."""
    found = []
    launcher = shutil.which("mpirun.openmpi")
    built = [build / "bin" / name for name in ("mpi_allreduce_once", "hvd_one_host_bench")]
    if launcher and all(program.exists() for program in built):
        first = children.run([launcher, "--version"], 60).splitlines()[0]
        found.append((OPEN_MPI, first.split()[-1]))
    try:
        script = "import torch; print(torch.__version__)"
        found.append(("torch", children.run([python, "-c", script], 60).strip()))
    except (children.ProgramError, OSError):
        pass
    return tuple(found)


def why_left_out(row, setting):
    """Why a row cannot run here; empty if it can."""
    if row.needs_root and os.geteuid() != 0:
        return "it makes pretend hosts, which needs root"
    if row.needs_torch and not setting.has(TORCHRUN):
        return f"torch is not installed ({HOW[TORCHRUN]})"
    if row.rivals and not any(setting.has(rival) for rival in row.rivals):
        return " and ".join(f"{rival} is not installed ({HOW[rival]})" for rival in row.rivals)
    return ""


def measure(root, build, rounds, only):
    """Runs the rows; returns the report, and the names of the rows that failed."""
    python = os.environ.get("PYTHON", "/usr/bin/python3")
    setting = Setting(root, build, rounds, python, installed(build, python))
    entries, left_out, failed = [], [], []

    def say(text):
        print(text, file=sys.stderr, flush=True)

    for row in ROWS:
        if only and row.id not in only:
            continue
        if reason := why_left_out(row, setting):
            say(f"{row.id}: left out, {reason}")
            left_out.append({"name": row.name, "reason": reason})
            continue
        for rival in row.rivals:
            if not setting.has(rival):
                say(f"{row.id}: {rival} is left out, it is not installed ({HOW[rival]})")
                left_out.append({"name": row.name, "reason": f"{rival} is not installed"})
        say(f"{row.id}: {row.name}")
        try:
            entries.append(entry_of(row, rounds, row.source(setting)))
        except (children.ProgramError, RowError, OSError, ValueError) as error:
            say(f"{row.id}: FAILED: {error}")
            failed.append(row.id)
            left_out.append({"name": row.name, "reason": "it failed"})
    if not entries:
        raise table.ReportError("no row was measured")
    report = {
        "schema": table.SCHEMA,
        "machine": {"cores": len(os.sched_getaffinity(0))},
        "versions": dict(setting.versions),
        "rows": entries,
        "left_out": left_out,
    }
    table.check(report)
    return report, failed
