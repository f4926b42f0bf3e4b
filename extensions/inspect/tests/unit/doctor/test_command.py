"""What ``hostcore doctor`` says about what was found, and with what exit code it ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import HostcoreError
from hostcore_inspect.doctor.finding import DoctorFinding
from hostcore_inspect.doctor.job import JobReport

FINE = DoctorFinding(name="torch", status="ok", finding="2.9.0", hint="never shown")
SLOW = DoctorFinding(name="disk.kind", status="warning", finding="nfs4", hint="move it", details={"kind": "nfs4"})
BROKEN = DoctorFinding(name="device.cuda:0", status="failed", finding="wrong results", hint="replace it")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Has these be found on the machine whose folder of runs is ``other``, and this about a job."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "other"))

    def have(*findings: DoctorFinding, report: JobReport | None = None) -> None:
        def examine(folder: Path, *, timeout_seconds: float) -> Iterator[DoctorFinding]:
            assert (folder, timeout_seconds) == (tmp_path / "other", 60)
            return iter(findings)

        monkeypatch.setattr("hostcore_inspect.doctor.machine.examine_machine", examine)
        if report is not None:
            monkeypatch.setattr("hostcore_inspect.doctor.job.examine_job", lambda *_, **__: report)

    return have


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.json").write_text('{"trainer": "a:B", "mock_batches": [1]}')
    return "job.json"


def test_findings_are_lines_with_marks_and_what_to_do(hostcore: Callable, found: Callable) -> None:
    found(FINE, SLOW)
    said = hostcore("doctor")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "ok      torch           2.9.0",
        "warn    disk.kind       nfs4",
        "                        do: move it",
        "",
        "nothing is broken: 2 checks, 1 warning",
    ]


@pytest.mark.parametrize(
    ("last", "code", "ok", "last_line"),
    [(SLOW, 0, True, "nothing is broken: 2 checks, 1 warning"), (BROKEN, 1, False, "1 of 2 checks FAILED")],
)
def test_json_is_one_document(
    hostcore: Callable, found: Callable, last: DoctorFinding, code: int, ok: bool, last_line: str
) -> None:
    found(FINE, last)
    assert hostcore("doctor").out.splitlines()[-1] == last_line
    said = hostcore("doctor", "--json")
    assert said.code == code
    assert said.json["ok"] is ok
    assert [list(one) for one in said.json["checks"]] == [["name", "status", "finding", "hint", "details"]] * 2
    assert said.json["checks"][1]["details"] == last.details


def test_what_a_job_does_not_need_may_be_broken(hostcore: Callable, found: Callable, job: str) -> None:
    valid = DoctorFinding(name="job", status="ok", finding="valid")
    found(FINE, BROKEN, report=JobReport(findings=[valid], devices=["cpu"]))
    said = hostcore("doctor", job, "--json")
    assert said.code == 0
    assert [(one["name"], one["status"]) for one in said.json["checks"]] == [
        ("torch", "ok"),
        ("device.cuda:0", "warning"),
        ("job", "ok"),
    ]


@pytest.mark.parametrize(("error", "code"), [("setting.invalid", 2), ("device.unavailable", 1), ("worker.died", 1)])
def test_a_job_that_could_run_nowhere_exits_2_and_one_that_cannot_run_here_1(
    hostcore: Callable, found: Callable, job: str, error: str, code: int
) -> None:
    invalid = DoctorFinding(name="job", status="failed", finding="cannot run")
    errors = [HostcoreError("no", code=error, pointer="/trainer")]
    found(FINE, report=JobReport(findings=[invalid], errors=errors))
    said = hostcore("doctor", job)
    assert said.code == code
    assert ("at: /trainer" in said.err) == (code == 2)
    assert said.out.splitlines()[-1] == "1 of 2 checks FAILED"


def test_a_job_that_is_not_well_formed_is_refused_before_anything_is_looked_at(
    hostcore: Callable, found: Callable, tmp_path: Path
) -> None:
    found()
    (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1}')
    said = hostcore("doctor", "job.json", "--json")
    assert said.code == 2
    assert [error["pointer"] for error in said.json["errors"]] == ["/max_steps"]


def test_it_imports_no_torch_however_much_of_it_it_looks_at(imported: Callable[..., Any]) -> None:
    modules = imported("doctor", "--timeout", "0.01")
    assert modules & {"torch", "pyarrow", "rich", "matplotlib", "numpy", "pandas"} == set()
