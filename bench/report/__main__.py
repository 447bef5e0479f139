"""Runs the table of numbers, and draws it.

The schema of its JSON is in table.py, the rows are in rows.py.
"""

import argparse
import pathlib
import signal
import sys

import children
import plot
import rows
import table

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse(words):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/report/run",
        description="Measures hvd beside other systems in turns, as ratios. Without --measure, "
        "--draw, --rows and --quick it measures all rows into docs/report.json and draws that.",
    )
    parser.add_argument("--measure", type=pathlib.Path, metavar="FILE", help="write JSON into FILE")
    parser.add_argument(
        "--draw",
        type=pathlib.Path,
        metavar="FILE",
        help="only draw the JSON in FILE: report.svg, and the blocks in both pages",
    )
    parser.add_argument(
        "--into",
        type=pathlib.Path,
        metavar="FOLDER",
        default=ROOT,
        help="where README.md and docs are (this repository)",
    )
    parser.add_argument(
        "--check", action="store_true", help="with --draw: write nothing, fail if it would"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each row (5)")
    parser.add_argument(
        "--rows",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="only these; without --measure they are printed and not written. There are "
        + ", ".join(row.id for row in rows.ROWS),
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of each row, to see that they run"
    )
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        metavar="FOLDER",
        default=ROOT / "build" / "release",
        help="the build whose programs are measured (build/release)",
    )
    given = parser.parse_args(words)
    if given.draw and (given.measure or given.rows or given.quick):
        parser.error("--draw measures nothing: --measure, --rows and --quick do not go with it")
    if given.check and not given.draw:
        parser.error("--check needs --draw")
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: must be 1 or more")
    known = [row.id for row in rows.ROWS]
    for name in given.rows or []:
        if name not in known:
            parser.error(f"--rows {name}: there is no such row; there are {', '.join(known)}")
    if given.quick:
        given.rounds = 1
    return given


def draw(file, folder, only_check):
    """Writes the plot and the blocks of the pages, or says which of them is not what is drawn."""
    report = table.load(file)
    blocks = {
        folder / "README.md": table.first_block(report),
        folder / "docs" / "performance.md": table.block(report),
    }
    wanted = {folder / "docs" / "report.svg": plot.svg(report)} | {
        page: table.with_block(page.read_text(), text, page.name) for page, text in blocks.items()
    }
    stale = [at for at, text in wanted.items() if not at.exists() or at.read_text() != text]
    if only_check:
        if stale:
            names = " and ".join(at.name for at in stale)
            raise table.ReportError(
                f"{names}: not what is drawn from {file.name}; bench/report/run --draw writes it"
            )
        return
    for at in stale:
        at.write_text(wanted[at])


def main(words):
    """Returns the exit code: 1 if a row failed, 2 if something cannot be done at all."""
    given = parse(words)
    try:
        if given.draw:
            draw(given.draw, given.into, given.check)
            return 0
        with children.nothing_left():
            report, failed = rows.measure(ROOT, given.build.resolve(), given.rounds, given.rows)
        only_print = not given.measure and (given.rows or given.quick)
        if not only_print:
            file = given.measure or given.into / "docs" / "report.json"
            file.write_text(table.dump(report))
        print(table.markdown(report))
        if not only_print and not given.measure:
            draw(file, given.into, False)
        return 1 if failed else 0
    except (table.ReportError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2


def stop(number, frame):
    """SIGTERM ends it as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        print("report: interrupted; nothing was written", file=sys.stderr)
        code = 130
    sys.exit(code)
