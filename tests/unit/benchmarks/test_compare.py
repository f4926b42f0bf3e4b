"""`benchmarks/compare.py`: what it calls slower, and that files which cannot be compared are one clear error."""

import json
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from checkout import ROOT
from fork_server import run

COMPARE = ROOT / "benchmarks" / "compare.py"


def compared(old: Path, new: Path) -> CompletedProcess[str]:
    return run([sys.executable, COMPARE, old, new], text=True)


class Results:
    """Two files of results, and what is said of them."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = folder / "old.json", folder / "new.json"

    def write(self, side: Path, values: dict[str, list[float]], *, more_is_better: bool = False, **other: Any) -> None:
        rows = {
            name: {"unit": "ms", "less_is_better": not more_is_better, "values": of_row}
            for name, of_row in values.items()
        }
        machine = {"cpu": "one", "cores": 2, "python": "3.12.3", "torch": "2.13.0", "date": "today", "commit": "abc"}
        document = {"benchmark": "feed", "settings": {"rows": 10}, "machine": machine, "rows": rows}
        side.write_text(json.dumps({**document, **other}))

    def both(self, old: list[float], new: list[float], **how: Any) -> CompletedProcess[str]:
        self.write(self.old, {"row": old}, **how)
        self.write(self.new, {"row": new}, **how)
        return self.compare()

    def compare(self) -> CompletedProcess[str]:
        return compared(self.old, self.new)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "more_is_better", "line", "code"),
    [
        ([10.0, 10.1, 10.2], [11.0, 11.1, 11.2], False, "10.1 | 11.1 | 1.099 | ± 1.5% | ± 1.4% | slower |", 1),
        ([10.0, 10.1, 12.0], [11.0, 11.1, 12.2], False, "| within its noise |", 0),
        ([10.0, 10.1, 10.2, 10.1, 90.0], [12.0, 12.1, 12.2, 12.1, 95.0], False, "| slower |", 1),
        ([10, 10, 10], [9, 9, 9], True, "| slower |", 1),
        ([10, 10, 10], [9, 9, 9], False, "| quicker |", 0),
        ([10], [20, 20], False, "| unknown | ± 0.0% | not judged: one round |", 0),
        ([0, 0], [5, 5], False, "| 0 | 5 | - |", 1),
        ([-2, -2], [5, 5], False, "-2 | 5 | - | ± 0.0% | ± 0.0% | slower |", 1),
        ([-2, -2], [-6, -6], False, "-2 | -6 | - | ± 0.0% | ± 0.0% | quicker |", 0),
    ],
)
def test_a_row_is_judged_by_the_noise_of_both(
    results: Results, old: list[float], new: list[float], more_is_better: bool, line: str, code: int
) -> None:
    done = results.both(old, new, more_is_better=more_is_better)
    assert line in done.stdout
    assert ("Slower than its noise: row" in done.stdout, done.returncode) == (bool(code), code)


def test_rows_that_one_side_lacks_or_did_not_measure_are_named_and_so_is_a_difference_of_the_machines(
    results: Results,
) -> None:
    measured = {"unit": "ms", "less_is_better": True, "values": [1, 1]}
    missing = {**measured, "values": None, "note": "only a GPU can show it"}
    results.write(results.old, {}, rows={"here": measured, "there": missing, "gone": measured})
    rows = {"here": measured, "there": measured, "added": measured}
    results.write(results.new, {}, rows=rows, machine={"cpu": "another", "cores": 2})
    done = results.compare()
    assert done.returncode == 0, done.stderr
    assert "| here | ms |" in done.stdout
    assert "| there |" not in done.stdout
    assert "In OLD only: gone" in done.stdout
    assert re.search("In NEW only: (added, there|there, added)", done.stdout)
    assert "OLD: cpu one, cores 2, python 3.12.3, torch 2.13.0, date today, commit abc" in done.stdout
    assert "The machines differ in cpu, python, torch: a ratio may be theirs." in done.stdout


NO_RESULT = "not what a benchmark writes"
NO_NUMBERS = "the values of 'row' are not a list of finite numbers"
UNITS = "different units of 'row': ms (less is better) and ms (more is better)"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (None, "new.json: No such file or directory"),
        ("| a table |", "new.json: not JSON"),
        ("[]", f"new.json: {NO_RESULT}"),
        ('{"rows": {}}', f"new.json: {NO_RESULT}"),
        ('{"benchmark": "feed", "settings": 1, "machine": {}, "rows": {}}', f"new.json: {NO_RESULT}"),
        *(({"values": {"row": one}}, f"new.json: {NO_NUMBERS}") for one in ([], [None], "12", [True], [float("nan")])),
        ({"benchmark": "kills"}, "compare.py: different benchmarks: feed and kills"),
        ({"settings": {"rows": 20}}, "compare.py: different settings: rows is 10 and 20"),
        ({"more_is_better": True}, f"compare.py: {UNITS}"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_one_line_that_says_why(results: Results, new: Any, words: str) -> None:
    results.write(results.old, {"row": [1, 1]})
    if isinstance(new, str):
        results.new.write_text(new)
    elif new is not None:
        results.write(results.new, **{"values": {"row": [1, 1]}, **new})
    done = results.compare()
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert words in line


def test_what_a_benchmark_writes_can_be_compared(tmp_path: Path) -> None:
    script = (
        "import sys, results, argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "results.add_option(parser)\n"
        "asked = parser.parse_args()\n"
        "results.write(asked.json, 'mine', results.rows('ms', {'row': [1.5, 2]}), rows=3)\n"
    )
    file = tmp_path / "result.json"
    command = [sys.executable, "-c", script, "--json", str(file)]
    run(command, cwd=ROOT / "benchmarks").check_returncode()
    done = compared(file, file)
    assert "mine: rows 3" in done.stdout
    assert "| row | ms | 1.75 | 1.75 | 1.000 |" in done.stdout


def with_option() -> list[str]:
    """The benchmarks of which the README says that they take ``--json FILE``."""
    usages = re.findall(r"python benchmarks/(\w+)\.py((?:.|\n {10,})*)", (COMPARE.parent / "README.md").read_text())
    return sorted({name for name, options in usages if "--json FILE" in options})


def test_a_benchmark_with_the_option_writes_this_shape() -> None:
    assert with_option()
    for name in with_option():
        source = (COMPARE.parent / f"{name}.py").read_text()
        assert "results.add_option(" in source
        assert re.search(rf'results\.write\(\w+\.json, "{name}", ', source)


def test_a_short_run_of_a_benchmark_can_be_compared(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    options = ["--only", "oom-hint", "--width", "0", "--steps", "2000", "--rounds", "1", "--json", str(file)]
    command = [sys.executable, str(COMPARE.with_name("callbacks.py")), *options]
    run(command, cwd=tmp_path).check_returncode()
    done = compared(file, file)
    assert "callbacks: steps 2000, width 0, clock wall" in done.stdout
    for row in ("without callbacks", "oom-hint, between", "oom-hint, at a cadence"):
        assert f"| {row} | µs |" in done.stdout
