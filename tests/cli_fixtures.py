"""The command, called in this process or in one of its own, and the directories of runs that it is asked about."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import Said

from hostcore.cli import cli
from hostcore.events.merger import Entry, EventLog
from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult
from hostcore_hookspecs.events import Payload


@pytest.fixture
def hostcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """``hostcore("list", "--json")``, in an empty folder."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        result = CliRunner().invoke(cli, arguments, prog_name="hostcore", catch_exceptions=False)
        return Said(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., set[str]]:
    """``imported("--help")``: the top-level modules that the command has imported when it is done."""
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from hostcore.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*{name.partition('.')[0] for name in set(sys.modules) - before}, file=sys.stderr)\n"
    )

    def call(*arguments: str) -> set[str]:
        run = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return set(run.stderr.splitlines()[-1].split())

    return call


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunDirectory]:
    """``run("a", status="succeeded")``: the directory of a run that ended so; without a status, of one that runs."""

    def make(
        run_id: str, *, status: str = "", submitted_ms: int = 1000, record: dict[str, Any] | None = None, **result: Any
    ) -> RunDirectory:
        directory = RunDirectory(tmp_path / "runs" / run_id)
        directory.make()
        job = {"trainer": "mine", "max_steps": 2000}
        told = {"job": job, "job_dir": str(tmp_path), "submitted_ms": submitted_ms, **(record or {})}
        RunRecord(**told).write(directory.record)
        me = ProcessIdentity.current()
        claim_attempt(directory.attempts, 1, process=me, started_ms=submitted_ms)
        if not status:
            Lease(process=me, attempt=1, step=7, last_progress_ms=0, renewed_ms=now_ms()).write(directory.lease)
            return directory
        about = {"metrics": {"train/loss": 0.5, "grad": None}, "started_ms": 1000, "ended_ms": 3000, **result}
        code = EXIT_CODES[status]
        RunResult(run_id=run_id, status=status, exit_code=code, attempt=1, step=1500, epoch=2, **about).write(
            directory.result
        )
        return directory

    return make


@pytest.fixture
def tell() -> Callable[..., None]:
    """``tell(directory, (None, RunSubmitted(…)), (10, Metrics(…)))``: events in a run's log, with their steps."""

    def append(directory: RunDirectory, *events: tuple[int | None, Payload], attempt: int = 1) -> None:
        log = EventLog(directory.events, run_id=directory.run_id, attempt=attempt)
        for step, payload in events:
            log.append(Entry(payload=payload, step=step, epoch=None if step is None else 0))
        log.close()

    return append
