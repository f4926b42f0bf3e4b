"""Policies are asked before anything is started or written: the operator's about every job, and those a job adds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fork_server import ran, run

REFUSED = 3

POLICIES = """
from hostcore_hookspecs import Denial

class Strict:
    def authorize_job(self, plan, principal, ctx):
        assert not ctx.over_http and principal.name
        return Denial(reason="nothing runs on Sundays", hint="come back on Monday")

class Lenient:
    def authorize_job(self, plan, principal, ctx):
        return None

class Failing:
    def authorize_job(self, plan, principal, ctx):
        raise RuntimeError("the directory does not answer")

class Quitting:
    def authorize_job(self, plan, principal, ctx):
        raise SystemExit(0)

class Interrupting:
    def authorize_job(self, plan, principal, ctx):
        raise KeyboardInterrupt
"""

TRAINER = """
class Trainer:
    def setup(self, ctx): ...
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx):
        from hostcore_hookspecs import StepResult
        return StepResult(metrics={"loss": 1.0})
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload, ctx): ...
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hostcore(site: Any, tmp_path: Path) -> Run:
    """``hostcore("run", job={…}, operator="…")``: the installed command, where these plugins are installed."""
    names = ("strict", "lenient", "failing", "quitting", "interrupting")
    site.install(
        "policies-of-the-tests",
        modules={"some_policies.py": POLICIES, "quiet_trainer.py": TRAINER},
        entry_points={
            "hostcore.policies": {name: f"some_policies:{name.capitalize()}" for name in names},
            "hostcore.trainers": {"quiet": "quiet_trainer:Trainer"},
        },
    )

    def run(command: str, *arguments: str, operator: str = "", **keys: Any) -> subprocess.CompletedProcess[str]:
        (tmp_path / "operator.toml").write_text(operator)
        job = {"trainer": "quiet", "run_id": "r", "max_steps": 2, "device": "cpu", "terminal": False, **keys}
        (tmp_path / "job.json").write_text(json.dumps(job))
        environment = {
            **site.environment,
            "HOSTCORE_CONFIG": str(tmp_path / "operator.toml"),
            "HOSTCORE_RUNS_DIR": str(tmp_path / "runs"),
        }
        return ran([command, tmp_path / "job.json", *arguments], cwd=tmp_path, env=environment, text=True)

    return run


RUN_IN_PYTHON = """
import hostcore
from hostcore.errors import all_errors

try:
    hostcore.run("job.json")
except Exception as error:
    print(*(one.code for one in all_errors(error)))
"""
STRICT = '[[policies]]\nuse = "strict"\n'


@pytest.mark.parametrize("arguments", [["run"], ["run", "--detach"], ["run", "--in-process"], ["validate"]])
def test_the_operators_denial_ends_every_command_with_3(hostcore: Run, arguments: list[str], tmp_path: Path) -> None:
    done = hostcore(*arguments, operator=STRICT)
    assert done.returncode == REFUSED, done.stderr
    assert "nothing runs on Sundays" in done.stderr
    assert "come back on Monday" in done.stderr
    assert "strict (policies-of-the-tests 1.0)" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs" / "r").exists()


def test_a_run_from_python_is_asked_about_as_well(hostcore: Run, site: Any, tmp_path: Path) -> None:
    assert hostcore("validate").returncode == 0  # it writes the job
    (tmp_path / "operator.toml").write_text(STRICT)
    environment = {**site.environment, "HOSTCORE_CONFIG": str(tmp_path / "operator.toml")}
    done = run([sys.executable, "-c", RUN_IN_PYTHON], cwd=tmp_path, env=environment, text=True)
    assert done.stdout == "policy.denied\n", done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("strict", "nothing runs on Sundays"),
        ("failing", "RuntimeError: the directory does not answer"),
        ("quitting", "SystemExit: 0"),
        ("interrupting", "KeyboardInterrupt"),
    ],
)
def test_a_denial_and_whatever_a_policy_raises_is_an_error_among_json(
    hostcore: Run, tmp_path: Path, policy: str, words: str
) -> None:
    done = hostcore("run", "--json", operator=f'[[policies]]\nuse = "{policy}"\n')
    assert done.returncode == REFUSED
    (error,) = json.loads(done.stdout)["errors"]
    assert error["code"] == "policy.denied"
    assert words in error["message"]
    assert not (tmp_path / "runs" / "r").exists()


def test_a_job_can_add_policies_and_take_none_away(hostcore: Run) -> None:
    assert hostcore("validate", policies=["strict"]).returncode == REFUSED
    assert hostcore("validate", operator=STRICT, policies=["lenient"]).returncode == REFUSED
    both = hostcore("validate", "--json", operator=STRICT, policies=["failing"])
    assert [error["code"] for error in json.loads(both.stdout)["errors"]] == ["policy.denied"] * 2


def test_what_is_allowed_runs(hostcore: Run) -> None:
    done = hostcore("run", operator='[[policies]]\nuse = "allow-list"\ntrainers = ["quiet"]\n', policies=["lenient"])
    assert done.returncode == 0, done.stderr


def test_checkpoints_go_nowhere_but_to_listed_places_whatever_uploads_them(hostcore: Run, tmp_path: Path) -> None:
    operator = '[[policies]]\nuse = "allow-list"\ncheckpoint_uris = ["s3://training/*"]\n'
    elsewhere = f"{tmp_path}/elsewhere"
    done = hostcore("run", operator=operator, uploaders=[{"use": "fsspec", "uri": elsewhere}])
    assert done.returncode == REFUSED
    assert f"the place '{elsewhere}' of the uploader 'fsspec' is not allowed" in done.stderr
    assert "allowed are s3://training/*" in done.stderr
    assert not Path(elsewhere).exists()


def test_a_policy_of_the_operator_that_is_not_there_stops_everything(hostcore: Run, tmp_path: Path) -> None:
    done = hostcore("run", operator='[[policies]]\nuse = "nobody"\n')
    assert done.returncode != 0
    assert "operator.toml" in done.stderr
    assert not (tmp_path / "runs" / "r").exists()
