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


class TestARow:
    def test_that_takes_longer_by_more_than_the_noise_of_both_is_slower(self, results: Results) -> None:
        done = results.both([10.0, 10.1, 10.2], [11.0, 11.1, 11.2])
        assert "| row | ms | 10.1 | 11.1 | 1.099 | ± 1.5% | ± 1.4% | slower |" in done.stdout
        assert "Slower than its noise: row" in done.stdout
        assert done.returncode == 1

    def test_that_differs_by_less_is_within_its_noise(self, results: Results) -> None:
        done = results.both([10.0, 10.1, 12.0], [11.0, 11.1, 12.2])
        assert "| within its noise |" in done.stdout
        assert done.returncode == 0

    def test_is_judged_in_spite_of_one_round_that_stands_out(self, results: Results) -> None:
        done = results.both([10.0, 10.1, 10.2, 10.1, 90.0], [12.0, 12.1, 12.2, 12.1, 95.0])
        assert "| slower |" in done.stdout

    def test_of_which_more_is_better_is_slower_with_less(self, results: Results) -> None:
        assert "| slower |" in results.both([10, 10, 10], [9, 9, 9], more_is_better=True).stdout
        assert "| quicker |" in results.both([10, 10, 10], [11, 11, 11], more_is_better=True).stdout

    def test_that_takes_less_is_quicker(self, results: Results) -> None:
        done = results.both([10, 10, 10], [9, 9, 9])
        assert "| quicker |" in done.stdout
        assert done.returncode == 0

    def test_of_a_single_round_is_not_judged(self, results: Results) -> None:
        done = results.both([10], [20, 20])
        assert "| unknown | ± 0.0% | not judged: one round |" in done.stdout
        assert done.returncode == 0

    def test_that_was_zero_has_no_ratio_and_is_judged(self, results: Results) -> None:
        done = results.both([0, 0], [5, 5])
        assert "| 0 | 5 | - |" in done.stdout
        assert done.returncode == 1

    def test_that_is_below_zero_has_no_ratio_and_is_judged(self, results: Results) -> None:
        assert "| row | ms | -2 | 5 | - | ± 0.0% | ± 0.0% | slower |" in results.both([-2, -2], [5, 5]).stdout
        assert "| row | ms | -2 | -6 | - | ± 0.0% | ± 0.0% | quicker |" in results.both([-2, -2], [-6, -6]).stdout

    def test_of_one_side_only_is_named(self, results: Results) -> None:
        results.write(results.old, {"kept": [1, 1], "gone": [1, 1]})
        results.write(results.new, {"kept": [1, 1], "added": [1, 1]})
        done = results.compare()
        assert "In OLD only: gone" in done.stdout
        assert "In NEW only: added" in done.stdout
        assert done.returncode == 0

    def test_that_was_not_measured_is_not_compared(self, results: Results) -> None:
        missing = {"unit": "ms", "less_is_better": True, "values": None, "note": "only a GPU can show it"}
        measured = {"unit": "ms", "less_is_better": True, "values": [1, 1]}
        results.write(results.old, {}, rows={"here": measured, "there": missing})
        results.write(results.new, {}, rows={"here": measured, "there": measured})
        done = results.compare()
        assert done.returncode == 0, done.stderr
        assert "| here | ms |" in done.stdout
        assert "| there |" not in done.stdout
        assert "In NEW only: there" in done.stdout


def test_the_machines_are_named_and_a_difference_is_said(results: Results) -> None:
    results.write(results.old, {"row": [1, 1]})
    results.write(results.new, {"row": [1, 1]}, machine={"cpu": "another", "cores": 2})
    done = results.compare()
    assert "OLD: cpu one, cores 2, python 3.12.3, torch 2.13.0, date today, commit abc" in done.stdout
    assert "The machines differ in cpu, python, torch: a ratio may be theirs." in done.stdout


class TestAnError:
    """Is one line on standard error; the exit status is 2."""

    @staticmethod
    def _error(results: Results) -> str:
        done = results.compare()
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        return line

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "No such file or directory"),
            ("| a table |", "not JSON"),
            ("[]", "not what a benchmark writes"),
            ('{"rows": {}}', "not what a benchmark writes"),
            ('{"benchmark": "feed", "settings": 1, "machine": {}, "rows": {}}', "not what a benchmark writes"),
        ],
    )
    def test_names_the_file_that_is_no_result(self, results: Results, content: str | None, words: str) -> None:
        results.write(results.old, {"row": [1, 1]})
        if content is not None:
            results.new.write_text(content)
        assert f"{results.new}: {words}" in self._error(results)

    @pytest.mark.parametrize("values", [[], [None], "12", [True], [float("nan")]])
    def test_names_the_row_whose_values_are_no_numbers(self, results: Results, values: Any) -> None:
        results.write(results.old, {"row": [1, 1]})
        results.write(results.new, {"row": values})
        assert "new.json: the values of 'row' are not a list of finite numbers" in self._error(results)

    def test_names_both_benchmarks(self, results: Results) -> None:
        results.write(results.old, {"row": [1, 1]})
        results.write(results.new, {"row": [1, 1]}, benchmark="kills")
        assert self._error(results) == "compare.py: different benchmarks: feed and kills"

    def test_names_the_setting_that_differs(self, results: Results) -> None:
        results.write(results.old, {"row": [1, 1]})
        results.write(results.new, {"row": [1, 1]}, settings={"rows": 20})
        assert self._error(results) == "compare.py: different settings: rows is 10 and 20"

    def test_names_the_row_whose_unit_differs(self, results: Results) -> None:
        results.write(results.old, {"row": [1, 1]})
        results.write(results.new, {"row": [1, 1]}, more_is_better=True)
        words = "different units of 'row': ms (less is better) and ms (more is better)"
        assert self._error(results) == f"compare.py: {words}"


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


@pytest.mark.parametrize("name", with_option())
def test_a_benchmark_with_the_option_writes_this_shape(name: str) -> None:
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
