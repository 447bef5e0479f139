# The numbers of docs/performance.md and README.md are those of docs/report.json, and bench/report
# says what is wrong with one that it cannot draw. Nothing is measured here.
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import types
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPORT = ROOT / "bench" / "report"
sys.path.insert(0, str(REPORT))

import children  # noqa: E402
import plot  # noqa: E402
import rows  # noqa: E402
import table  # noqa: E402


def main_of_the_report():
    spec = importlib.util.spec_from_file_location("report_main", REPORT / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


MAIN = main_of_the_report()


def run(*words):
    """bench/report/run in this process."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = MAIN([str(word) for word in words])
    return types.SimpleNamespace(returncode=code, stderr=err.getvalue())


def report():
    return json.loads((DOCS / "report.json").read_text())


@pytest.fixture
def folder(tmp_path):
    """A copy of what the report draws, with its JSON."""
    (tmp_path / "docs").mkdir()
    for name in "README.md", "docs/report.json", "docs/report.svg", "docs/performance.md":
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def draw(folder, *words):
    return run("--draw", folder / "docs" / "report.json", "--into", folder, *words)


def test_the_pages_and_the_plot_are_drawn_from_the_json():
    command = [REPORT / "run", "--draw", DOCS / "report.json", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_another_number_in_the_json_makes_them_stale_until_they_are_drawn(folder):
    changed = report()
    row = next(row for row in changed["rows"] if row["id"] == "kill_torch")
    row["hvd"]["median"] *= 2
    for rival in row["rivals"]:
        rival["ratio"] = table.ratio_of(row["hvd"]["median"], rival["median"], row["better"])
    (folder / "docs" / "report.json").write_text(json.dumps(changed))
    ended = draw(folder, "--check")
    assert ended.returncode == 2
    stale = "report.svg and README.md and performance.md: not what is drawn from report.json"
    assert stale in ended.stderr
    assert draw(folder).returncode == 0
    assert draw(folder, "--check").returncode == 0


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_a_number_in_a_page_that_was_changed_by_hand_is_found(folder, name):
    page = folder / name
    text = page.read_text()
    page.write_text(text.replace(" times as fast |", " times as slow |", 1))
    assert draw(folder, "--check").returncode == 2
    assert draw(folder).returncode == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    "break_it, said",
    [
        (lambda all: all.pop("rows"), '"rows" is missing'),
        (lambda all: all["rows"].clear(), "has no rows"),
        (lambda all: all.update(schema=2), '"schema" is 2; this program knows 1'),
        (lambda all: all["machine"].update(cores="2"), '"cores" must be int'),
        (lambda all: all["rows"][0].pop("unit"), 'row 1: "unit" is missing'),
        (lambda all: all["rows"][0].update(better="red"), '"better" must be "less" or "more"'),
        (lambda all: all["rows"][0]["hvd"].update(median=0), '"median" must be above 0'),
        (lambda all: all["rows"][0]["rivals"][0].update(ratio=999), "the ratio is 999, but that"),
        (lambda all: all["rows"].append(all["rows"][0]), "has two rows with the same id"),
        (lambda all: all["left_out"].append("x"), "left_out"),
    ],
)
def test_a_broken_report_is_refused_with_the_reason(folder, break_it, said):
    broken = report()
    break_it(broken)
    (folder / "docs" / "report.json").write_text(json.dumps(broken))
    ended = draw(folder)
    assert ended.returncode == 2
    assert ended.stderr.startswith("report: ") and said in ended.stderr


def test_text_that_is_no_json_is_refused(folder):
    (folder / "docs" / "report.json").write_text("{")
    ended = draw(folder)
    assert ended.returncode == 2
    assert "no JSON" in ended.stderr


def test_a_page_without_the_marks_is_refused_and_left_alone(folder):
    page = folder / "docs" / "performance.md"
    page.write_text("# Performance\n")
    ended = draw(folder)
    assert ended.returncode == 2
    assert "each once" in ended.stderr
    assert page.read_text() == "# Performance\n"


def test_the_table_of_the_readme_has_a_row_that_hvd_loses_and_misses_none(folder):
    rows = {row["id"]: row for row in report()["rows"]}
    ratios = [
        next(rival["ratio"] for rival in rows[id]["rivals"] if rival["name"] == name)
        for id, (name, _) in table.FIRST.items()
    ]
    assert len(ratios) == 6
    assert min(ratios) < 1

    without = report()
    without["rows"] = [row for row in without["rows"] if row["id"] != "small"]
    (folder / "docs" / "report.json").write_text(json.dumps(without))
    ended = draw(folder)
    assert ended.returncode == 2
    assert 'row "small": README.md shows it beside Open MPI, which is missing' in ended.stderr


def test_the_plot_is_xml_that_asks_for_nothing_from_elsewhere():
    text = plot.svg(report())
    tree = ElementTree.fromstring(text)
    namespace = "{http://www.w3.org/2000/svg}"
    assert tree.tag == namespace + "svg"
    bars = [one for one in tree if one.get("class") in ("faster", "slower")]
    assert len(bars) == sum(len(row["rivals"]) for row in report()["rows"])
    assert "href" not in text and "url(" not in text and "@import" not in text
    width = float(tree.get("width"))
    for bar in bars:
        assert 0 <= float(bar.get("x")) <= float(bar.get("x")) + float(bar.get("width")) <= width


def test_the_report_names_no_machine_and_no_path():
    text = (DOCS / "report.json").read_text()
    assert os.uname().nodename not in text
    assert str(ROOT) not in text and "/root" not in text and "/home" not in text


def test_rates_are_compared_the_other_way_round():
    assert table.ratio_of(10, 40, "less") == 4
    assert table.ratio_of(40, 10, "more") == 4


def setting(build):
    return rows.Setting(ROOT, build, 1, sys.executable, (("torch", "2"),))


def test_numbers_are_read_from_the_tables_of_benchmarks():
    text = "161 tensors, 102 MB; one flat   30.1   188.6   167.1   0.16   at most 0.4\n"
    found = rows.columns_of(2 * text, rows.row_name(text, "161 tensors"))
    assert found[:3] == [[30.1, 30.1], [188.6, 188.6], [167.1, 167.1]]
    with pytest.raises(rows.RowError, match='no line with "4 KB"'):
        rows.columns_of(text, "4 KB")


def test_columns_are_known_by_their_heading():
    text = (
        "4 processes; medians in ms         hvd  hvd empty()   Open MPI       Gloo  hvd/MPI\n"
        "one tensor of 4 KB                0.09        0.04       0.05       4.06     2.10\n"
    )
    found = rows.named_columns(text, "one tensor of 4 KB")
    assert (found["hvd"], found["Open MPI"], found["Gloo"]) == ([0.09], [0.05], [4.06])
    with pytest.raises(rows.RowError, match="no heading"):
        rows.named_columns("one tensor of 4 KB  0.09\n", "one tensor of 4 KB")


def test_a_program_that_is_not_built_is_an_error_of_its_row(tmp_path):
    with pytest.raises(rows.RowError, match="hvdrun is not built"):
        setting(tmp_path).program("hvdrun")


def test_a_row_without_its_rivals_is_left_out(tmp_path):
    row = rows.Row("x", "x", None, (rows.OPEN_MPI,))
    assert "Open MPI is not installed" in rows.why_left_out(row, setting(tmp_path))
    assert rows.why_left_out(rows.Row("x", "x", None, (rows.GLOO,)), setting(tmp_path)) == ""


def test_a_row_that_fails_is_named_and_the_others_are_kept(tmp_path, monkeypatch, capfd):
    def fails(setting):
        children.run(["sh", "-c", "echo it broke >&2; exit 3"], 60)

    good = rows.Row("good", "a good row", lambda setting: {"hvd": [2], "Gloo": [4]}, ("Gloo",))
    monkeypatch.setattr(rows, "ROWS", (rows.Row("bad", "a bad row", fails), good))
    measured, failed = rows.measure(ROOT, tmp_path, 1, None)
    assert failed == ["bad"]
    assert [row["id"] for row in measured["rows"]] == ["good"]
    assert measured["rows"][0]["rivals"][0]["ratio"] == 2
    assert measured["left_out"] == [{"name": "a bad row", "reason": "it failed"}]
    assert "bad: FAILED: sh ended with 3: it broke" in capfd.readouterr().err


def test_ctrl_c_ends_all_that_was_started(tmp_path):
    # A program whose child has a session of its own and outlives it.
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import children\n"
        "children.GRACE = 0.2\n"
        "with children.nothing_left():\n"
        "  children.run(['sh', '-c', 'setsid sleep 1000 & echo $! > ' + sys.argv[2]"
        " + '/new; mv ' + sys.argv[2] + '/new ' + sys.argv[2] + '/pid; sleep 1000'], 60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, REPORT, tmp_path], stderr=subprocess.DEVNULL
    )
    pid = tmp_path / "pid"
    while not pid.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_the_runs_of_the_plot_with_shards_have_the_same_losses_and_weights():
    text = (DOCS / "shards.svg").read_text()
    tree = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    # A rank 0 that is killed between a commit and its line of output leaves out a point.
    curves = [set(line.get("points").split()) for line in tree.iter(f"{space}polyline")]
    words = [one.text for one in tree.iter(f"{space}text")]
    digests = [word for word in words if re.fullmatch("[0-9a-f]{16}", word)]
    assert len(digests) == 8
    assert len(set(digests)) == 1
    assert len(curves) == 8
    assert all(curve <= curves[0] and len(curve) > 40 for curve in curves)
