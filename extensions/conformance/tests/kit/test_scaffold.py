"""What ``hostcore new`` writes, for every kind: installed by pip and used, exactly as it stands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import fork_server
import pytest
from checkout import ROOT
from click.testing import CliRunner

from hostcore_conformance.cli.new import new_command
from hostcore_conformance.scaffold.naming import MAX_LENGTH, spelling
from hostcore_hookspecs import KINDS

#: The kinds whose packages have a job.
WITH_JOB = ("trainer", "data_source", "callback", "reporter", "uploader", "resolver")


def write(kind: str, name: str, folder: Path) -> Path:
    answer = CliRunner().invoke(new_command, [spelling(KINDS[kind]), name, "--into", str(folder), "--author", "Ada"])
    assert answer.exit_code == 0, answer.output
    return folder / name


@attrs.frozen(kw_only=True)
class Packages:
    """A package of each kind as it was written, and an environment in which all of them are installed."""

    folder: Path
    environment: Mapping[str, str]

    def name(self, kind: str) -> str:
        return f"my-{spelling(KINDS[kind])}"

    def copy(self, kind: str, target: Path) -> Path:
        """A package's folder as its author has it, to work in."""
        return Path(shutil.copytree(self.folder / self.name(kind), target / self.name(kind)))

    def python(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, "HOSTCORE_RUNS_DIR": ""}
        return fork_server.run([sys.executable, "-P", *arguments], cwd=cwd, env=environment, text=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("written")
    written = [write(kind, f"my-{spelling(KINDS[kind])}", folder) for kind in KINDS]
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(site)]
    # hatchling leaves nothing in the folders that it builds, so they stay as they were written.
    subprocess.run([*pip, *map(str, written)], check=True)
    # Without the broken plugins, which other tests have put there for the whole session.
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if "conformance-site" not in one]
    path = os.pathsep.join([str(site), *filter(None, others)])
    return Packages(folder=folder, environment={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


def test_they_are_listed_and_require_the_contract(packages: Packages, tmp_path: Path) -> None:
    answer = packages.python("-m", "hostcore", "plugins", "--json", cwd=tmp_path)
    found = json.loads(answer.stdout)
    own = {one["kind"]: one for one in found["plugins"] if one["distribution"].startswith("my-")}
    assert list(own) == list(KINDS)
    for kind, one in own.items():
        assert (one["name"], one["distribution"], one["conflict"]) == (packages.name(kind), packages.name(kind), False)
    assert found["broken"] == []
    assert "hostcore-hookspecs" not in answer.stderr  # which would be the warning that it is not required


@pytest.mark.parametrize("kind", KINDS)
def test_the_own_tests_of_a_package_pass(packages: Packages, kind: str, tmp_path: Path) -> None:
    folder = packages.copy(kind, tmp_path)
    arguments = ["-q", "-p", "no:cacheprovider", "-W", "error", "--ignore", "tests/test_conformance.py"]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what a fork has imported already
    answer = packages.python("-m", "pytest", *arguments, cwd=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert " passed" in answer.stdout
    assert "skipped" not in answer.stdout


@pytest.mark.parametrize("kind", WITH_JOB)
def test_the_job_of_a_package_runs_as_it_is_and_its_loss_falls(packages: Packages, kind: str, tmp_path: Path) -> None:
    folder = packages.copy(kind, tmp_path)
    # From outside the folder, as the README of the command says: relative paths of a job start at its own folder.
    answer = packages.python("-m", "hostcore", "run", f"{folder.name}/job.json", "--set", "run_id=a", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    run = tmp_path / "runs/a"
    assert json.loads((run / "result.json").read_text())["status"] == "succeeded"
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    losses = [event["metrics"]["train/loss"] for event in events if event["event"] == "metrics"]
    assert len(losses) > 4
    assert losses[-1] < 0.2 * losses[0]
    assert not [event for event in events if event["event"] in ("warning", "reporter_failed", "upload_failed")]
    _LEFT.get(kind, lambda *_: None)(folder, run)


def _callback_left(_: Path, run: Path) -> None:
    assert json.loads((run / "my-callback/lowest.json").read_text())["step"] == 40


def _reporter_left(folder: Path, run: Path) -> None:
    told = [int(line.split()[0]) for line in (folder / "logs/a.log").read_text().splitlines()]
    assert told == [json.loads(line)["seq"] for line in (run / "logs/events.jsonl").read_text().splitlines()]


def _uploader_left(folder: Path, run: Path) -> None:
    (result,) = (folder / "mirror").rglob("result.json")
    assert result.read_bytes() == (run / "result.json").read_bytes()


#: What a plugin leaves, beside what any run does.
_LEFT: Mapping[str, Any] = {"callback": _callback_left, "reporter": _reporter_left, "uploader": _uploader_left}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_passes_the_kit_as_it_is(packages: Packages, kind: str, tmp_path: Path) -> None:
    folder = packages.copy(kind, tmp_path)
    before = set(folder.rglob("*"))
    answer = packages.python("-m", "hostcore", "check", packages.name(kind), "--json", "-", "--certified", cwd=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    results = json.loads(answer.stdout)["results"]
    assert kind in {result["id"].partition(".")[0] for result in results}
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize("kind", ["reporter"])
def test_the_kit_is_part_of_the_own_tests(packages: Packages, kind: str, tmp_path: Path) -> None:
    folder = packages.copy(kind, tmp_path)
    answer = packages.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_conformance.py", cwd=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert " passed" in answer.stdout


def _rules() -> list[str]:
    """The rules of this project, for ruff: beside its own default, they hold for what the project writes."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    tests = lint["per-file-ignores"]["{tests,benchmarks}/**"]
    ignored = [argument for rule in tests for argument in ("--per-file-ignores", f"**/tests/**:{rule}")]
    return ["--select", ",".join(lint["select"]), "--ignore", ",".join(lint["ignore"]), *ignored]


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of each kind whose name is as long as names may be."""
    folder = tmp_path_factory.mktemp("long")
    for kind in KINDS:
        write(kind, f"{spelling(KINDS[kind])}-".ljust(MAX_LENGTH, "x"), folder)
    return folder


@pytest.mark.parametrize("arguments", [["check"], ["check", *_rules()], ["format", "--check"]])
def test_ruff_has_nothing_to_say_however_long_the_name(
    packages: Packages, long_names: Path, arguments: list[str]
) -> None:
    for folder in (packages.folder, long_names):
        # Each file is judged by the pyproject.toml of its own package.
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."]
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_mypy_has_nothing_to_say(packages: Packages, tmp_path: Path) -> None:
    settings = tomllib.loads((packages.folder / "my-trainer/pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    # torch's own source takes longer to read than all the rest; so here it is a module of unknown types.
    lines = ["[mypy]", "strict = true", "[mypy-torch.*]", "follow_imports = skip"]
    for override in settings["overrides"]:
        for module in override["module"]:
            lines += [f"[mypy-{module}]", f"ignore_missing_imports = {override['ignore_missing_imports']}"]
    (tmp_path / "mypy.ini").write_text("\n".join(lines) + "\n")
    sources = sorted(map(str, packages.folder.glob("my-*/my_*")))
    assert len(sources) == len(KINDS)
    command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini")]
    command += ["--cache-dir", str(tmp_path / "cache"), *sources]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


# The workflows: the one of each package, and the one that any package can call


def _yaml(path: Path) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(path)


def test_the_workflow_of_a_package_gives_the_kit_options_that_it_has(packages: Packages) -> None:
    from hostcore_conformance.cli.check import check_command

    for kind in KINDS:
        workflow = _yaml(packages.folder / packages.name(kind) / ".github/workflows/ci.yml")
        assert workflow["permissions"] == {"contents": "read"}
        steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
        (line,) = [line for step in steps for line in step.splitlines() if line.startswith("hostcore check ")]
        with check_command.make_context("check", shlex.split(line)[2:]) as context:
            assert context.params["name"] == packages.name(kind)
            assert context.params["json_file"] == "reports/conformance.json"


#: Stands for hostcore in the script of a workflow: notes how it was called, and fails for plugins called `poor`.
STAND_IN = """#!/bin/sh
printf '%s|' "$@" >> "$CALLS"; echo >> "$CALLS"
case "$*" in *poor*) exit 1;; esac
"""


@pytest.fixture
def reusable() -> dict[str, Any]:
    workflow: dict[str, Any] = _yaml(ROOT / ".github/workflows/conformance.yml")
    return workflow


@pytest.mark.parametrize(
    ("inputs", "code", "calls"),
    [
        ({"PLUGINS": "one two"}, 0, ["check|one|", "check|two|"]),
        ({"PLUGINS": "", "CERTIFIED": "true"}, 0, ["check|--certified|"]),
        ({"PLUGINS": "one", "PARTIAL": "true"}, 0, ["check|one|--partial|"]),
        (
            {"PLUGINS": " poor  dist/two ", "KIND": "reporter"},
            1,
            ["check|poor|--kind|reporter|", "check|dist/two|--kind|"],
        ),
        (
            {"PLUGINS": "$(touch evil)", "KIND": "; touch evil"},
            0,
            ["check|$(touch|--kind|; touch evil|", "check|evil)|"],
        ),
    ],
)
def test_the_reusable_workflow_checks_every_plugin_and_runs_no_input(
    reusable: dict[str, Any], tmp_path: Path, inputs: dict[str, str], code: int, calls: list[str]
) -> None:
    (step,) = [step for step in reusable["jobs"]["check"]["steps"] if step.get("name") == "Check"]
    assert "${{" not in step["run"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hostcore").write_text(STAND_IN)
    (tmp_path / "bin/hostcore").chmod(0o755)
    environment = {
        **dict.fromkeys(step["env"], ""),
        **inputs,
        "REPORTS": str(tmp_path / "reports"),
        "CALLS": str(tmp_path / "calls"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub starts it
    answer = subprocess.run(bash, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == code, answer.stderr
    made = (tmp_path / "calls").read_text().splitlines()
    assert len(made) == len(calls)
    for line, call in zip(made, calls, strict=True):
        assert line.startswith(call)
        assert f"|--json|{tmp_path}/reports/" in line
    assert not list(tmp_path.rglob("evil"))


def test_the_reusable_workflow_can_only_read(reusable: dict[str, Any]) -> None:
    assert reusable["permissions"] == {"contents": "read"}
    called = reusable["on"]["workflow_call"]
    assert {"plugins", "kind", "python-versions", "package", "extras", "certified", "partial"} <= set(called["inputs"])
    assert "secrets" not in called
    actions = [step["uses"] for step in reusable["jobs"]["check"]["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v[0-9]+", action) for action in actions)
