"""Validating jobs over HTTP: what the check may know, and what becomes of one that does not come back."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from hostcore_builtin_plugins.extras import install_command
from hostcore_service.jobs import checking

JOB = {"trainer": "tiny", "max_steps": 3, "run_id": "a", "device": "cpu", "terminal": False}


@pytest.fixture
def hostcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``hostcore(source)``: what runs in place of ``hostcore validate``, which has tests of its own."""

    def make(source: str) -> None:
        package = tmp_path / "stand-in" / "hostcore"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(package.parent))

    return make


def validate(opened: Any, **keys: Any) -> Any:
    return opened.client.post("/v1/jobs:validate", json={**JOB, **keys})


def test_what_the_check_finds_is_the_plan(opened: Any, hostcore: Callable[[str], None]) -> None:
    hostcore(
        """
import json, os, sys
job = json.load(open(sys.argv[-1]))
print(json.dumps({"job": job, "directory": "/x", "asked": sys.argv[1:-1], "names": sorted(os.environ), "saw": job}))
"""
    )
    os.environ["TRAINER_API_TOKEN"] = "not for children"
    try:
        answer = validate(opened)
    finally:
        del os.environ["TRAINER_API_TOKEN"]
    assert answer.status_code == 200, answer.text
    plan = answer.json()["plan"]
    assert answer.json()["job"]["run_id"] == "a"
    assert plan["unchecked"] == []
    assert plan["launch"] == {"summary": "nothing at all", "document": ""}
    assert [(one["kind"], one["name"]) for one in plan["plugins"]] == [("trainer", "tiny"), ("launcher", "instant")]
    checked = plan["checked"]
    assert set(checked) == {"asked", "names", "saw"}
    assert checked["asked"] == ["validate", "--json"]
    assert not {"TRAINER_API_TOKEN", "HOSTCORE_CONFIG"} & set(checked["names"])
    assert not {"launcher", "resources", "policies"} & set(checked["saw"])
    assert opened.service.jobs.get("a") is None


UNKNOWN = {"code": "plugin.unknown", "message": f"none in {ROOT}/x.py", "pointer": "/trainer"}
WRONG = {"code": "value.type", "message": "wrong", "pointer": "/hyperparams/x", "hint": "h"}
HINT = "pip install 'extensions/trackers[mlflow]'"
#: What the check finds, and what the service shows of it, which names no place of the service.
FOUND: list[tuple[dict[str, Any], int, Any]] = [
    ({"errors": [WRONG]}, 400, [{"pointer": "/hyperparams/x", "code": "value.type", "detail": "wrong", "hint": "h"}]),
    (
        {"errors": [{**UNKNOWN, "hint": install_command("mlflow")}]},
        400,
        [{"code": "plugin.unknown", "pointer": "/trainer", "detail": "none in x.py", "hint": HINT}],
    ),
    ({"warnings": [f"see {ROOT}/x.py"]}, 200, {"warnings": ["see x.py"]}),
]
NO_DEVICE = {"errors": [{"code": "device.unavailable", "message": "no cuda", "pointer": "/device"}]}
#: Checks that find nothing out: they die, or this machine alone lacks the device.
NOTHING = [(f"print({json.dumps(json.dumps(NO_DEVICE))})", "no cuda")]
NOTHING += [(source, "") for source in ("import os; os._exit(9)", "print('no json')", "print('[1]')")]


def test_what_the_check_finds_is_answered_and_what_it_does_not_stays_unchecked(
    opened: Any, hostcore: Callable[[str], None]
) -> None:
    for found, status, shown in FOUND:
        hostcore(f"import sys; print({json.dumps(json.dumps(found))}); sys.exit({2 if 'errors' in found else 0})")
        answer = validate(opened)
        assert (answer.status_code, str(ROOT) in answer.text) == (status, False)
        assert (answer.json()["errors"] if status == 400 else answer.json()["plan"]["checked"]) == shown
    for source, says in NOTHING:
        hostcore(source)
        plan = validate(opened).json()["plan"]
        assert (plan["checked"], len(plan["unchecked"]), says in plan["unchecked"][0]) == (None, 1, True), source


def test_a_check_that_takes_too_long_is_ended_with_all_it_has_started(
    opened: Any, hostcore: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "_SECONDS", 2.0)
    monkeypatch.setattr(checking, "_LEAVE_SECONDS", 0.5)
    hostcore(
        f"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
time.sleep(600)
"""
    )
    plan = validate(opened).json()["plan"]
    assert plan["checked"] is None
    assert "2 seconds" in plan["unchecked"][0]
    if (tmp_path / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_is_not_allowed_is_not_even_checked(opened: Any, hostcore: Callable[[str], None], tmp_path: Path) -> None:
    hostcore(f"open({str(tmp_path / 'checked')!r}, 'w')")
    opened.job("a")
    chaos = {"callbacks": [{"use": "chaos", "faults": ["kill@step=1"]}]}
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({}, 409, "/run_id"),
        ({"run_id": "b", "environment": {"python": "3.12"}}, 400, "/environment"),
        ({"run_id": "b", **chaos}, 400, "/callbacks/0"),
    ]
    for keys, status, pointer in refused:
        answer = validate(opened, **keys)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer)
    assert not (tmp_path / "checked").exists()
