"""A small real run of the subject, by the real host, in this process."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.codec import decode_event
from hostcore.in_process import run_here
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.restarting import run_attempts
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import make_plan
from hostcore.supervisor.remote.bringing import bring_here
from hostcore_conformance.errors import NoExample
from hostcore_conformance.process.settings import process_kept
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.events import Event, Metrics

#: What every rehearsal decides for itself, unless the check says otherwise.
_SMALL: Final[Mapping[str, Any]] = {
    "run_id": "rehearsal",
    "max_steps": 6,
    "metric_every": 1,
    "checkpoint_every": 0,
    "keep_checkpoints": 100,
    "reporters": [],
    "terminal": False,
    "uploaders": [],
}


@attrs.frozen(kw_only=True, eq=False)
class Rehearsal:
    """A run that is over."""

    result: RunResult
    directory: RunDirectory

    @property
    def events(self) -> tuple[Event, ...]:
        """Its events, in order."""
        lines = self.directory.events.read_bytes().splitlines()
        return tuple(decode_event(line) for line in lines)

    def metrics(self, name: str = "train/loss") -> dict[int, float | None]:
        """The recorded values of a metric by step; None for one that was not finite."""
        return {
            event.step: event.payload.metrics[name]
            for event in self.events
            if isinstance(event.payload, Metrics) and event.step is not None and name in event.payload.metrics
        }


def require_job(subject: Subject) -> None:
    """See that there is an example job to run.

    :raises NoExample: There is none.
    """
    if not subject.has_job:
        raise NoExample(
            "there is no example job to run. Write a small one, tests/job.json:"
            f' {{"trainer_api_version": "v1", "trainer": "{subject.name}", "dataset": {{"parquet_paths":'
            ' ["tests/data.parquet"], "batch_size": 4}}, and put into pyproject.toml:'
            f' [tool.hostcore.conformance.{subject.name}] job = "tests/job.json" (or give --job tests/job.json)'
        )


def rehearse(subject: Subject, *, runs: Path | None = None, **changes: Any) -> Rehearsal:
    """Run the example job for a few steps, as ``hostcore run --in-process`` would.

    The run is real: data source, feed, loop, callbacks, checkpoints, the log, ``result.json``. Six steps, every metric
    recorded, only the final checkpoint, unless changed.

    :param runs: The folder of its run directory; a new one if not given. Two rehearsals in one folder with the same
        ``run_id`` are two attempts of a run.
    :param changes: Keys of the job to set; None removes one. ``callbacks`` replaces the example's.
    :return: The run; one that failed, too.
    :raises NoExample: The author gave no example job.
    :raises HostcoreError: The job is invalid.
    """
    require_job(subject)
    job = {**subject.job, **_SMALL, **changes}
    job = {key: value for key, value in job.items() if value is not None}
    return run_small(job, runs=runs or subject.folder(), job_dir=subject.example.folder)


def run_small(job: Mapping[str, Any], *, runs: Path, job_dir: Path) -> Rehearsal:
    """Run a job in this process, and draw nothing.

    :param runs: The folder of its run directory.
    :param job_dir: Where import paths and relative paths start.
    :raises HostcoreError: The job is invalid.
    """
    plan = attrs.evolve(make_plan(job, runs=runs, job_dir=job_dir), plots=False)
    with process_kept(), Interrupts() as interrupts:
        plan, _ = bring_here(plan, lambda _: None)
        opened = open_run(plan)
        if isinstance(opened, RunResult):
            return Rehearsal(result=opened, directory=plan.directory)
        result = run_attempts(plan, opened, partial(run_here, interrupts))
    return Rehearsal(result=result, directory=plan.directory)
