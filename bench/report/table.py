"""The report as JSON, and as a table in Markdown.

    {"schema": 1,
     "machine": {"cores": 2},
     "versions": {"Open MPI": "4.1.4", ...},       of what is compared with
     "rows": [
       {"id": "fused",
        "name": "161 tensors ...",                 what is done
        "unit": "ms",                              of all medians and worsts of the row
        "better": "less",                          or "more", for rates
        "rounds": 5,                               turns
        "round": "the median of 11 calls",         what one turn gives
        "hvd": {"median": 27.5, "worst": 31.0},    over the turns
        "rivals": [{"name": "Open MPI", "median": 134, "worst": 150, "ratio": 4.87}],
        "note": "..."}],                           what is not alike; may be empty
     "left_out": [{"name": "...", "reason": "..."}]}

A ratio of medians says how many times as fast as the rival hvd is: above 1 hvd is faster. "worst"
is the largest of times and the smallest of rates. A row without rivals has an empty list.
"""

import json

SCHEMA = 1
BEGIN = "<!-- bench/report begins: written by bench/report/run, not by hand -->"
END = "<!-- bench/report ends -->"


# The rows that README.md begins with, the rival beside each, and what is done in fewer words. In
# one of them hvd is slower.
FIRST = {
    "kill_torch": ("torchrun", "1 of 4 workers in PyTorch is killed: until the next commit"),
    "grow_torch": ("torchrun", "2 workers in PyTorch become 4: no commit for"),
    "startup": ("Open MPI", "8 workers start, reduce once and end"),
    "fused": ("Open MPI", "allreduce of 161 tensors, 102 MB, 4 workers on one host"),
    "hosts": ("Gloo", "the same, 4 pretend hosts of 1 worker"),
    "small": ("Open MPI", "allreduce of 4 KB, 4 workers on one host"),
}


class ReportError(Exception):
    """A report that cannot be read or drawn."""


def rounded(value, digits=4):
    """The number with so many significant digits."""
    return float(f"{value:.{digits}g}")


def ratio_of(ours, theirs, better):
    """How many times as fast as the rival hvd is, from medians."""
    return rounded(theirs / ours if better == "less" else ours / theirs, 3)


def shown(value):
    """Three significant digits, and no exponent: 0.0951, 27.5, 4,583."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def times(ratio):
    """A ratio as the table and the plot show it, in two digits below 10."""
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:#.2g}" if ratio < 1 else f"{ratio:.1f}"


def dump(report):
    """The text of report.json."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _expect(condition, where, what):
    if not condition:
        raise ReportError(f"{where}: {what}")


def _field(value, name, kind, where):
    _expect(isinstance(value, dict), where, "must be an object")
    _expect(name in value, where, f'"{name}" is missing')
    right = isinstance(value[name], kind) and not isinstance(value[name], bool)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    _expect(right, where, f'"{name}" must be {" or ".join(one.__name__ for one in kinds)}')
    return value[name]


def _check_side(side, where):
    for name in ("median", "worst"):
        _expect(_field(side, name, (int, float), where) > 0, where, f'"{name}" must be above 0')


def _check_row(row, where):
    for name in ("id", "name", "unit", "better", "round", "note"):
        _field(row, name, str, where)
    where = f'row "{row["id"]}"'
    _expect(row["better"] in ("less", "more"), where, '"better" must be "less" or "more"')
    _expect(_field(row, "rounds", int, where) > 0, where, '"rounds" must be above 0')
    ours = _field(row, "hvd", dict, where)
    _check_side(ours, f"{where}, hvd")
    for rival in _field(row, "rivals", list, where):
        beside = f"{where}, {_field(rival, 'name', str, f'{where}, a rival')}"
        _check_side(rival, beside)
        ratio = ratio_of(ours["median"], rival["median"], row["better"])
        told = _field(rival, "ratio", (int, float), beside)
        _expect(told == ratio, beside, f"the ratio is {told}, but that of the medians is {ratio}")


def check(report):
    """ReportError unless it is as the top of this file says."""
    where = "the report"
    schema = _field(report, "schema", int, where)
    _expect(schema == SCHEMA, where, f'"schema" is {schema}; this program knows {SCHEMA}')
    cores = _field(_field(report, "machine", dict, where), "cores", int, '"machine"')
    _expect(cores > 0, '"machine"', '"cores" must be above 0')
    _field(report, "versions", dict, where)
    rows = _field(report, "rows", list, where)
    _expect(rows, where, "has no rows")
    for at, row in enumerate(rows):
        _check_row(row, f"row {at + 1}")
    ids = [row["id"] for row in rows]
    _expect(len(set(ids)) == len(ids), where, "has two rows with the same id")
    for at, one in enumerate(_field(report, "left_out", list, where)):
        for name in ("name", "reason"):
            _field(one, name, str, f"left_out {at + 1}")


def load(file):
    """The report in a file; ReportError says what is wrong with it."""
    try:
        report = json.loads(file.read_text())
    except OSError as error:
        raise ReportError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ReportError(f"{file}: no JSON: {error}") from None
    try:
        check(report)
    except ReportError as error:
        raise ReportError(f"{file}: {error}") from None
    return report


def _side(side, unit):
    return f"{shown(side['median'])} {unit} ({shown(side['worst'])})"


def notes_of(report):
    """The different notes of the rows, in their order."""
    return list(dict.fromkeys(row["note"] for row in report["rows"] if row["note"]))


def markdown(report):
    """A line for each rival of each row, with the number of its note."""
    notes = notes_of(report)
    lines = [
        "| work | hvd: median (worst) | beside | its median (worst) | hvd is |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in report["rows"]:
        ours = _side(row["hvd"], row["unit"])
        name = row["name"]
        if row["note"]:
            name += f" <sup>{notes.index(row['note']) + 1}</sup>"
        if not row["rivals"]:
            lines.append(f"| {name} | {ours} | - | - | - |")
        for at, rival in enumerate(row["rivals"]):
            work = (name, ours) if at == 0 else ("", "")
            lines.append(
                f"| {work[0]} | {work[1]} | {rival['name']} | {_side(rival, row['unit'])} "
                f"| {times(rival['ratio'])} times as fast |"
            )
    return "\n".join(lines)


def _rounds(report):
    counts = sorted({row["rounds"] for row in report["rows"]})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _wrapped(text, width=97):
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def block(report):
    """The text between the two marks in performance.md."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    cores = report["machine"]["cores"]
    notes = [f"{at}. {note}" for at, note in enumerate(notes_of(report), 1)]
    left_out = [f"- left out: {one['name']}; {one['reason']}" for one in report["left_out"]]
    paragraphs = [
        _wrapped(
            f"Measured in turns on {cores} cores that had other work, so trust the ratios. Each "
            f"number is the median of {_rounds(report)} rounds, with the worst of them in "
            "parentheses. A ratio below 1 means that the other one is faster. "
            f"[report.json](report.json) has all numbers. Beside: {versions}."
        ),
        "![How many times as fast as other systems hvd is](report.svg)",
        markdown(report),
    ]
    for entries in notes, left_out:
        if entries:
            paragraphs.append("\n".join(_wrapped(one).replace("\n", "\n   ") for one in entries))
    return "\n\n".join(paragraphs)


def first_block(report):
    """The text between the two marks in README.md: the rows of FIRST, without their worst rounds.

    ReportError if one of them is missing: a page must not lose a row in silence.
    """
    rows = {row["id"]: row for row in report["rows"]}
    lines = ["| work | hvd | beside | hvd is |", "| --- | --- | --- | --- |"]
    for id, (name, work) in FIRST.items():
        rivals = {rival["name"]: rival for rival in rows.get(id, {"rivals": []})["rivals"]}
        missing = f"README.md shows it beside {name}, which is missing"
        _expect(name in rivals, f'row "{id}"', missing)
        unit, rival = rows[id]["unit"], rivals[name]
        ours, theirs = shown(rows[id]["hvd"]["median"]), shown(rival["median"])
        lines.append(
            f"| {work} | {ours} {unit} | {name}: {theirs} {unit} "
            f"| {times(rival['ratio'])} times as fast |"
        )
    cores = report["machine"]["cores"]
    text = (
        f"Medians of {_rounds(report)} rounds, in turns on {cores} cores that had other work, "
        "without GPUs. A ratio below 1 means that the other one is faster. torchrun starts all "
        "workers again, from a checkpoint of the last step. "
        "[docs/performance.md](docs/performance.md#known-figures) has all rows and their notes."
    )
    return "\n".join(lines) + "\n\n" + _wrapped(text)


def with_block(page, text, name):
    """The page with another block; ReportError if it has not each mark once, in order."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ReportError(f"{name}: must have the lines {BEGIN} and {END}, each once")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"
