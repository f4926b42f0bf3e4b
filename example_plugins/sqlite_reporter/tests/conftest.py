"""What the host would hand to the reporter."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlite_reporter.reporter import SqliteReporter

from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import Payload

Open = Callable[..., SqliteReporter]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "runs.db"


@pytest.fixture
def open_reporter(path: Path) -> Iterator[Open]:
    """Opens reporters of the file, as an attempt does; they are closed in the end."""
    opened = []

    def open_reporter(**settings: object) -> SqliteReporter:
        reporter = SqliteReporter(settings=SqliteReporter.Settings(**{"path": path, **settings}))
        job = Job(trainer="line")
        reporter.open(ReporterContext(run_id="a", attempt=1, job=job, run_dir="/runs/a"))
        opened.append(reporter)
        return reporter

    yield open_reporter
    for reporter in opened:
        reporter.close()


def event(seq: int, payload: Payload, step: int = 0, run_id: str = "a") -> Event:
    return Event(seq=seq, time_ms=1_700_000_000_000, run_id=run_id, attempt=1, step=step, payload=payload)


@pytest.fixture
def make_event() -> Callable[..., Event]:
    return event
