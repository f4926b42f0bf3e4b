"""The kit in pytest, as a plugin's author has it: a package with one test, and pytest in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import fork_server
import pytest

pytestmark = pytest.mark.usefixtures("installed_plugins")

PROJECT = """
[project]
name = "a-package"

[tool.hostcore.conformance.reference]
harness = "tests/harness.py:Harness"

[tool.hostcore.conformance."policy.decides"]
harness = "tests/harness.py:Harness"
expected_failures = { "policy.decides" = "it is a policy for demonstrations", "policy.answers" = "it did not, once" }
"""
HARNESS = "from reference_plugins.policy import Decisions as Harness\n"
TESTS = """
from hostcore_conformance import parametrize_with_checks

@parametrize_with_checks("reference", kind="policy")
def test_good(check):
    check()

@parametrize_with_checks("policy.decides")
def test_known(check):
    check()

@parametrize_with_checks("policy.same_answer")
def test_should(check):
    check()

@parametrize_with_checks("policy.leaves_plan")
def test_must(check):
    check()
"""

TRAINER_TESTS = """
from hostcore_conformance import parametrize_with_checks

@parametrize_with_checks("digits", kind="trainer")
def test_conformance(check):
    check()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "tests" / "harness.py").write_text(HARNESS)
    (tmp_path / "tests" / "test_conformance.py").write_text(TESTS)
    return tmp_path


def run_pytest(folder: Path, *arguments: str, anew: bool = False) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder.

    :param anew: Whether in a new interpreter, which has imported nothing.
    """
    # Without what this pytest has set; its options, which keep plugins of other packages out, hold there, too.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**inherited, "PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", "")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    if anew:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return fork_server.run(command, cwd=folder, env=environment, text=True)


def test_every_check_is_a_test_with_its_own_outcome(package: Path) -> None:
    said = run_pytest(
        package, "-v", "-rsxw", "-k", "policy.", "--conformance-report", "report.json", "--junitxml=x.xml"
    )
    assert said.returncode == 1
    outcomes = dict(line.split("::")[1].split()[:2] for line in said.stdout.splitlines() if "%]" in line)
    assert outcomes == {
        "test_good[policy.answers]": "PASSED",
        "test_good[policy.odd_jobs]": "PASSED",
        "test_good[policy.leaves_plan]": "PASSED",
        "test_good[policy.same_answer]": "PASSED",
        "test_good[policy.decides]": "PASSED",
        "test_known[policy.answers]": "FAILED",  # a known failure that passes
        "test_known[policy.odd_jobs]": "SKIPPED",  # blocked
        "test_known[policy.leaves_plan]": "SKIPPED",
        "test_known[policy.same_answer]": "SKIPPED",
        "test_known[policy.decides]": "SKIPPED",
        "test_should[policy.answers]": "PASSED",
        "test_should[policy.odd_jobs]": "PASSED",
        "test_should[policy.leaves_plan]": "PASSED",
        "test_should[policy.same_answer]": "PASSED",  # with a warning
        "test_should[policy.decides]": "SKIPPED",
        "test_must[policy.answers]": "PASSED",
        "test_must[policy.odd_jobs]": "PASSED",
        "test_must[policy.leaves_plan]": "FAILED",
        "test_must[policy.same_answer]": "PASSED",
        "test_must[policy.decides]": "SKIPPED",
    }
    for words in (
        "it passes, though it is declared to fail: 'it did not, once'. Remove it from expected_failures.",
        "ConformanceWarning: policy.same_answer: expected one answer for",
        "give a harness with two plans, denied and allowed",
        "ConformanceError: expected the plan of a job with nothing special to be left as it is",
        "got job.labels is {'team': 'nobody'}, and was {}",
        "fix Read it; copy what you need",
        "hostcore: the policy reference (hostcore-reference-plugins 1.0.0) passes what was asked: 5 passed",
        "the policy policy.same_answer (hostcore-broken-policies 1.0.0) passes what was asked: 3 passed, 1 warning,",
        "the policy policy.leaves_plan (hostcore-broken-policies 1.0.0) does NOT conform: 3 passed, 1 failed,",
    ):
        assert words in said.stdout
    assert "session.py" not in said.stdout, "the kit's own frames are no help"
    reports = json.loads((package / "report.json").read_text())["reports"]
    assert [(one["plugin"]["name"], len(one["results"])) for one in reports] == [
        ("policy.decides", 5),
        ("policy.leaves_plan", 5),
        ("policy.same_answer", 5),
        ("reference", 5),
    ]
    assert list(ET.parse(package / "x.xml").iter("property")) == [], "the report is not spread over the JUnit file"


@pytest.mark.parametrize(
    ("name", "place"), [("odd_jobs", "broken_policies/__init__.py("), ("leaves_plan", "checks/policy.py(")]
)
def test_the_debugger_stops_where_the_plugin_raised_or_else_in_the_check(name: str, place: str, package: Path) -> None:
    test = package / "tests" / "test_conformance.py"
    test.write_text(TESTS.replace("policy.leaves_plan", f"policy.{name}"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pdb", "-k", f"test_must and policy.{name}"]
    said = subprocess.run(command, cwd=package, input="q\n", capture_output=True, text=True, check=False)
    stopped = said.stdout.partition("PDB post_mortem")[2].partition("(Pdb)")[0]
    assert place in stopped, said.stdout + said.stderr


def test_a_known_failure_is_xfailed_with_its_reason(package: Path) -> None:
    file = package / "pyproject.toml"
    file.write_text(file.read_text().replace(', "policy.answers" = "it did not, once"', ""))
    said = run_pytest(package, "-q", "-rx", "-k", "test_known and policy.")
    assert said.returncode == 0, said.stdout
    assert "it is a policy for demonstrations (expected the plan `denied` of the harness to be denied" in said.stdout
    assert "passes what was asked: 4 passed, 1 expected failure" in said.stdout


def test_workers_of_xdist_report_the_same(package: Path) -> None:
    apart = run_pytest(package, "-q", "-k", "policy.", "-n", "2", "--conformance-report", "apart.json")
    alone = run_pytest(package, "-q", "-k", "policy.", "--conformance-report", "alone.json")
    lines = [[line for line in said.stdout.splitlines() if line.startswith("hostcore: ")] for said in (apart, alone)]
    assert len(lines[0]) == 4
    assert sorted(lines[0]) == sorted(lines[1])
    found = []
    for name in ("apart.json", "alone.json"):
        reports = json.loads((package / name).read_text())["reports"]
        found.append(
            {one["plugin"]["name"]: {each["id"]: each["status"] for each in one["results"]} for one in reports}
        )
    assert found[0] == found[1]


def test_a_pytest_that_uses_nothing_of_the_kit_imports_nothing_of_it(tmp_path: Path) -> None:
    heavy = ("torch", "pyarrow", "numpy", "cattrs", "hostcore_conformance.session", "hostcore_conformance.checks")
    (tmp_path / "test_own.py").write_text(
        f"import sys\ndef test_own(): assert [name for name in {heavy} if name in sys.modules] == []\n"
        "def test_it_is_there(): assert 'hostcore_conformance.pytest_plugin' in sys.modules\n"
    )
    said = run_pytest(tmp_path, "-q", anew=True)
    assert said.returncode == 0, said.stdout
    assert "2 passed" in said.stdout
    assert "hostcore: " not in said.stdout


def test_collecting_the_checks_imports_neither_torch_nor_pyarrow(package: Path) -> None:
    (package / "tests" / "conftest.py").write_text(
        "import sys\n"
        "def pytest_collection_finish(session):\n"
        "    print('heavy:', [name for name in ('torch', 'pyarrow') if name in sys.modules])\n"
    )
    said = run_pytest(package, "-q", "-s", "--collect-only", anew=True)
    assert said.returncode == 0, said.stdout
    assert "heavy: []" in said.stdout


@pytest.mark.parametrize(("asked", "begun"), [((), True), (("-k", "plugin.registered"), False), (("-n", "1"), False)])
def test_what_runs_import_is_imported_while_the_first_checks_are_made(
    asked: tuple[str, ...], begun: bool, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "test_digits.py").write_text(TRAINER_TESTS)
    (tmp_path / "conftest.py").write_text(
        "import os\nimport pytest\nfrom pathlib import Path\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_runtest_call():\n"
        "    Path('children').write_text(Path(f'/proc/self/task/{os.getpid()}/children').read_text())\n"
        "    raise RuntimeError('that is enough')\n"
    )
    said = run_pytest(tmp_path, "-x", *asked)
    assert "that is enough" in said.stdout, said.stdout + said.stderr
    assert bool((tmp_path / "children").read_text()) == begun


def test_a_report_without_a_place_is_refused_before_any_test(package: Path) -> None:
    said = run_pytest(package, "--conformance-report", "nowhere/report.json")
    assert said.returncode == pytest.ExitCode.USAGE_ERROR
    assert said.stderr.strip() == f"ERROR: --conformance-report: there is no folder {package / 'nowhere'}"


def test_a_trainer_without_an_example_job_fails_once_unless_that_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "test_digits.py").write_text(TRAINER_TESTS)
    asked = ["-q", "-k", "trainer.trains or trainer.resume or trainer.reproducible"]
    said = run_pytest(tmp_path, *asked)
    assert said.returncode == 1
    assert "not asked: there is no example job to run" in said.stdout
    assert "1 failed" in said.stdout.splitlines()[-1]
    assert "the trainer digits" in said.stdout
    assert "is NOT fully checked" in said.stdout
    accepted = run_pytest(tmp_path, *asked, "--conformance-partial")
    assert accepted.returncode == 0
    assert "is NOT fully checked" in accepted.stdout
