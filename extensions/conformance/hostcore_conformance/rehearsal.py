"""A small real run of the subject, by the real host, in this process."""

import re
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import attrs

from hostcore.checkpoints.find import committed
from hostcore.events.codec import decode_event
from hostcore.in_process import run_here
from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.restarting import run_attempts
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import make_plan
from hostcore.supervisor.remote.bringing import bring_here
from hostcore_conformance.errors import ConformanceError, NoExample
from hostcore_conformance.process.settings import process_kept
from hostcore_conformance.subject import Subject, installed
from hostcore_hookspecs import hookimpl
from hostcore_hookspecs.events import Event, RunStarted

#: Keys that every rehearsal sets itself, unless the check sets them.
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
#: See :class:`CompleteJob`.
_COMPLETE: Final = f"{__name__}:CompleteJob"
_FRAME: Final = re.compile(r'File "(.+)", line (\d+)')
#: Libraries that a plugin calls and that raise in its name.
_NOT_OF_PLUGINS: Final = ("/attr/", "/torch/", "/numpy/", "/pluggy/", "/hostcore/", "/json/")


class RunTraceback(Exception):
    """Traceback of a failed run; the cause of the error that a check raises about it."""


@attrs.frozen(kw_only=True, eq=False)
class RunRecording:
    """Files of a finished run."""

    directory: RunDirectory

    @property
    def events(self) -> tuple[Event, ...]:
        """Its events, in order."""
        lines = self.directory.events.read_bytes().splitlines()
        return tuple(decode_event(line) for line in lines)

    @property
    def metrics(self) -> Mapping[tuple[int, str], Any]:
        """The recorded values, by step and name, in the order in which they came first; of a step done twice, the last.

        None is a value that was not finite.
        """
        found: dict[tuple[int, str], Any] = {}
        for event in self.events:
            found |= {(event.step or 0, name): value for name, value in getattr(event.payload, "metrics", {}).items()}
        return found

    @property
    def on_cpu(self) -> bool:
        """True if it was trained on the CPU."""
        return all(one.payload.device == "cpu" for one in self.events if isinstance(one.payload, RunStarted))

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.directory.path / "checkpoints"

    @property
    def steps(self) -> Sequence[int]:
        """Of which there are checkpoints."""
        return [record.step for record in committed(self.checkpoints)]

    def state(self, step: int | None = None, name: str = "state") -> Any:
        """Read a part of a checkpoint.

        :param step: Its step; that of the last one if not given.
        :param name: ``state`` of the trainer, ``host``, or ``rank-0``.
        """
        from hostcore.checkpoints.state import read_state

        record = next(one for one in reversed(committed(self.checkpoints)) if step in (None, one.step))
        return read_state(self.checkpoints / record.folder_name, name)


@attrs.frozen(kw_only=True, eq=False)
class Rehearsal(RunRecording):
    """A run that is over."""

    result: RunResult

    def require_success(self, what: str, *, fix: str = "") -> Self:
        """See that it has succeeded.

        :param what: The run in words: ``a run with it``.
        :param fix: What to do about it, if its error has no hint.
        :raises ConformanceError: It has not; with the run's own error.
        """
        if self.result.status == "succeeded":
            return self
        error = self.result.error
        got = how_it_ended(self.result)
        raise ConformanceError(
            expected=f"{what} to succeed",
            got=got,
            fix=(error and error.hint) or fix or "Run it yourself to see more: hostcore run JOB --in-process.",
        ) from RunTraceback("\n" + (error.traceback if error is not None else got))


class CompleteJob:
    """A callback for trainers that bring data: the job has it already, and what a check leaves out stays out."""

    @hookimpl(wrapper=True)
    def data_sections(self) -> Generator[None, Any, None]:
        """Ask the trainer, as every run does, and take nothing from it."""
        yield


def how_it_ended(result: RunResult) -> str:
    """The end of a run in words, with its error and the plugin's own line that it came from."""
    error, end = result.error, f"{result.status} at step {result.step}"
    if error is None:
        return end
    frames = _FRAME.findall(error.traceback)
    own = [frame for frame in frames if not any(part in frame[0] for part in _NOT_OF_PLUGINS)]
    at = next((f" at {Path(file).name}:{line}" for file, line in reversed(own or frames)), "")
    return f"{end}: {error.type}: {error.message.strip()}{at}" + (f", by {error.plugin}" if error.plugin else "")


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


def small_job(subject: Subject, **changes: Any) -> dict[str, Any]:
    """The example job for a few steps.

    :param changes: Keys to set; None removes one.
    :raises NoExample: The author gave no example job.
    """
    require_job(subject)
    job = {**subject.job, **_SMALL, **changes}
    if subject.kind.name == "trainer" and subject.has("data_sections"):
        job["callbacks"] = [*(job.get("callbacks") or ()), _COMPLETE]
    return {key: value for key, value in job.items() if value is not None}


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
    return run_small(small_job(subject, **changes), runs=runs or subject.folder(), job_dir=subject.example.folder)


def run_small(job: Mapping[str, Any], *, runs: Path, job_dir: Path) -> Rehearsal:
    """Run a job in this process, and draw nothing.

    :param runs: The folder of its run directory.
    :param job_dir: Where import paths and relative paths start.
    :raises HostcoreError: The job is invalid.
    """
    plan = attrs.evolve(make_plan(job, runs=runs, job_dir=job_dir, discovered=installed()), plots=False)
    with process_kept(), Interrupts() as interrupts:
        plan, _ = bring_here(plan, lambda _: None)
        opened = open_run(plan)
        if isinstance(opened, RunResult):
            return Rehearsal(result=opened, directory=plan.directory)
        result = run_attempts(plan, opened, partial(run_here, interrupts))
    return Rehearsal(result=result, directory=plan.directory)
