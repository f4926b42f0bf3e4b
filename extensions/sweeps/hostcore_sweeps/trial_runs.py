"""The runs of trials: started as a person starts them, watched by their event logs, cancelled like any run.

On this machine a trial is a process ``hostcore run``, in a session of its own: it outlives the driver. Where the job
names a launcher, that process hands the run to it and ends. At a service, the run is a job of the service.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import attrs
import orjson

from hostcore.cli.job_options import JobOptions
from hostcore.cli.run_client import RunClient, RunHandle, RunLog, RunRequest
from hostcore.errors import all_errors
from hostcore.events.codec import CorruptLog, decode_event
from hostcore.events.reader import name_of
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.paths import with_absolute_paths
from hostcore.runs.directory import RunDirectory
from hostcore.runs.statuses import ALIVE
from hostcore.runs.summary import UnknownRun
from hostcore.supervisor.check import CheckFailed
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.remote.watching import refresh_far
from hostcore.supervisor.run_status import RunStatus
from hostcore.supervisor.writable import RunUnwritable
from hostcore_hookspecs.errors import HostcoreError, TransientError
from hostcore_hookspecs.events import Metrics, Test, Validation
from hostcore_sweeps.folder import SweepFolder, file_errors
from hostcore_sweeps.spec import Sweep
from hostcore_sweeps.trials import Trial

#: ``over``: the run has ended, or is lost. ``absent``: there is none, and nothing is about to make it.
RunState = Literal["absent", "alive", "over"]
#: Begins the reason of a run that is cancelled to be gone on with.
PAUSED: Final = "the sweep was stopped"
#: Status and reason of a run that its launcher alone has cancelled.
_UNHEARD: Final = ("cancelled", None)
_NAMES: Final = ("metrics", "validation", "test")
#: An engine that did not answer.
_OUTAGE: Final = TransientError.code
#: Codes of errors about the present state of a service or an engine, not about the request.
_PASSING: Final = frozenset(
    {
        "service.unreachable",
        "service.busy",
        "service.full",
        "service.database",
        "service.defect",
        "service.launcher",
        "request.too_many",
        _OUTAGE,
    }
)
#: Codes of errors of ``hostcore run``, each of which comes alone, and their causes; see :class:`Refusal`.
_CAUSES: Final[Mapping[str, Literal["busy", "outage", "death"]]] = {
    "device.busy": "busy",
    _OUTAGE: "outage",
    CheckFailed.code: "death",
}


@attrs.frozen(kw_only=True)
class Reported:
    """Values of the objectives at a step, from the event log of a run."""

    step: int
    values: Mapping[str, float | None]


@attrs.frozen(kw_only=True)
class RunEnd:
    """End of a run."""

    status: str
    step: int
    #: Why, in a line.
    reason: str
    #: Whether it was ended from outside, and is resumed from its newest checkpoint if it is started again.
    was_interrupted: bool
    #: Whether the sweep itself has ended it so.
    was_paused: bool


class Starts(Protocol):
    """Starts runs at one place."""

    def start(self, number: int) -> "RunHandle | None":
        """Start the run of a trial, or have it go on; both may be done again. The run, if it is known at once.

        :raises HostcoreError: When it is refused.
        """

    def is_starting(self, number: int) -> bool:
        """Return whether a process of this driver runs the trial, or submits it."""

    def refusal(self, number: int) -> "Refusal | None":
        """Return the error of a last start that has ended without a run; None without one."""


@attrs.frozen(kw_only=True)
class Refusal:
    """Error of a run that was not started."""

    message: str
    #: ``job``: what was asked for, which is refused again; all else may pass. ``busy``: its devices are held by others,
    #: or the service is away. ``outage``: an engine did not answer, which a wrong address does not either. ``death``: a
    #: process was killed while it checked the job.
    cause: Literal["job", "busy", "outage", "death"]


def may_pass(error: HostcoreError) -> bool:
    """Return whether a service or an engine may answer otherwise later: it is away, or has too much to do."""
    return all(one.code in _PASSING for one in all_errors(error))


class TrialRuns:
    """The runs of a sweep's trials.

    :param client: Finds the runs.
    :param runs: The folder of all runs; None for those of a service.
    """

    def __init__(self, sweep: Sweep, client: RunClient, starts: Starts, *, runs: Path | None) -> None:
        self._runs = runs
        self._sweep = sweep
        self._client = client
        self._starts = starts
        self._metrics = frozenset(one.metric for one in sweep.spec.objectives)
        self._handles: dict[int, RunHandle] = {}
        self._logs: dict[int, RunLog] = {}
        #: The metrics that runs have, whatever they are: for an objective that none of them reports.
        self.seen_metrics: set[str] = set()
        #: Those of their validations.
        self.validation_metrics: set[str] = set()

    def start(self, number: int) -> None:
        """Start the run of a trial, or have it go on."""
        handle = self._starts.start(number)
        if handle is not None:
            self._handles[number] = handle

    def refusal(self, number: int) -> Refusal | None:
        """Return the error of a last start that has ended without a run; None without one."""
        return self._starts.refusal(number)

    def state(self, number: int) -> RunState:
        """Return the present state of a trial's run."""
        starting = self._starts.is_starting(number)  # first: what it has made by its end is seen then
        handle = self._handle(number)
        if starting:
            return "alive"
        if handle is None:
            return "absent"
        if self._runs is None:  # its own poll waits for a service that is away, and ignores Ctrl-C meanwhile
            handle = self._handles[number] = self._client.find(handle.run_id)
            return "over" if handle.status().summary.status not in ALIVE else "alive"
        try:
            is_over = handle.is_over()
            # After its end was seen: all that its mirror has is here then, of a run that does not see its directory.
            refresh_far(RunDirectory(self._runs / handle.run_id))
        except UnknownRun:  # it could not be launched, and was taken back
            del self._handles[number]
            return "absent"
        return "over" if is_over else "alive"

    def reports(self, number: int) -> Iterator[Reported]:
        """Yield the values reported since the last call."""
        handle = self._handle(number)
        if handle is None:
            return
        log = self._logs.get(number)
        if log is None:
            log = self._logs[number] = handle.events(attempt=None, since=None)
        for line in log.history():
            if name_of(line) not in _NAMES:
                continue
            try:
                event = decode_event(line)
            except CorruptLog:  # a newer hostcore may have written it
                continue
            if isinstance(event.payload, Metrics | Validation | Test):
                self.seen_metrics.update(event.payload.metrics)
                if isinstance(event.payload, Validation):
                    self.validation_metrics.update(event.payload.metrics)
                values = {name: value for name, value in event.payload.metrics.items() if name in self._metrics}
                if values and event.step is not None:
                    yield Reported(step=event.step, values=values)

    def end(self, number: int) -> RunEnd:
        """Return the end of a run that is over."""
        handle = self._handle(number)
        assert handle is not None
        shown = handle.status()
        status = shown.summary.status
        killed = status == "failed" and shown.error is not None and shown.error.type == "WorkerDied"
        paused = status == "cancelled" and (shown.reason or "").startswith(PAUSED)
        return RunEnd(
            status=status,
            step=shown.summary.step,
            reason=_reason(shown),
            # Without a reason: its launcher has ended it, and could not pass one on.
            was_interrupted=killed or paused or status in ("lost", "preempted") or (status, shown.reason) == _UNHEARD,
            was_paused=paused,
        )

    def cancel(self, number: int, *, reason: str, force: bool = False) -> None:
        """Ask a run to end; asked again, it stays asked."""
        handle = self._handle(number)
        if handle is not None:
            with suppress(RunConflict):  # it is just being launched
                handle.cancel(reason=reason, force=force, wait=False, watch=lambda _: None)

    def last_checkpoint(self, number: int) -> str:
        """The commit record of the newest checkpoint of a run that has ended.

        :raises HostcoreError: ``sweep.checkpoint`` when there is none that is seen here.
        """
        handle = self._handle(number)
        kept = handle.status().checkpoints if handle is not None else ()
        if self._runs is None or handle is None or not kept:
            hint = "population based training needs the run directories: on this machine, or a disk that all see"
            raise HostcoreError(f"trial {number} has no checkpoint to begin from", code="sweep.checkpoint", hint=hint)
        newest = max(kept, key=lambda one: one.step)
        return str(RunDirectory(self._runs / handle.run_id).checkpoints / f"{newest.name}.json")

    def _handle(self, number: int) -> RunHandle | None:
        if number not in self._handles:
            run_id = self._sweep.run_id(number)
            try:
                found = self._client.find(run_id)
            except UnknownRun:
                return None
            if found.run_id != run_id:  # another that begins so
                return None
            self._handles[number] = found
        return self._handles[number]


def _reason(shown: RunStatus) -> str:
    if shown.error is not None:
        return f"{shown.error.type}: {shown.error.message}".partition("\n")[0]
    return shown.reason or shown.lost or shown.summary.status


def job_of(sweep: Sweep, trial: Trial, *, resume: str | None) -> dict[str, Any]:
    """The job of a trial, with absolute paths.

    :param resume: The job's ``resume_from_checkpoint``; None: as it is in the job.
    :raises HostcoreError: When it is no job: everything that is wrong with it.
    """
    document = sweep.job_of(trial.number, trial.values)
    if resume is not None:
        document["resume_from_checkpoint"] = resume
    load_job(document, job_dir=sweep.job_dir)
    return with_absolute_paths(document, sweep.job_dir)


class LocalStarts(Starts):
    """Starts runs of this machine: on it, or by the launcher of the job.

    :param runs: The folder of all runs.
    """

    def __init__(self, folder: SweepFolder, sweep: Sweep, runs: Path) -> None:
        self._folder = folder
        self._job_dir = sweep.job_dir
        self._runs = runs
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """Start a process for the trial. The job comes on standard input: its import paths start at its own folder.

        :raises SweepUnwritable: When there is no room for what it prints.
        """
        job = self._folder.job(number)
        launcher = json.loads(job.read_bytes()).get("launcher", "local")
        name = launcher if isinstance(launcher, str) else launcher.get("use", "")
        detached = [] if is_builtin(name, "local") else ["--detach"]
        # Safe path (-P): the working directory may have a module of any name.
        command = [sys.executable, "-P", "-m", "hostcore", "run", "/dev/stdin", "--runs-dir", str(self._runs)]
        with ExitStack() as stack:
            with file_errors(self._folder.path):
                given = stack.enter_context(job.open("rb"))
                answer = stack.enter_context(self._folder.answer(number).open("wb"))
                output = stack.enter_context(self._folder.output(number).open("ab"))
            self._processes[number] = subprocess.Popen(
                [*command, "--server", "", "--quiet", "--json", *detached],
                stdin=given,
                stdout=answer,
                stderr=output,
                cwd=self._job_dir if self._job_dir.is_dir() else None,
                env={**os.environ},
                start_new_session=True,
            )

    def is_starting(self, number: int) -> bool:
        """Return whether the process of the last start runs."""
        process = self._processes.get(number)
        return process is not None and process.poll() is None

    def refusal(self, number: int) -> Refusal | None:
        """Return the errors that the process has printed.

        :raises HostcoreError: When the run directories cannot be written, which is not the trial's fault.
        """
        if number not in self._processes:
            return None
        try:
            answer: Any = orjson.loads(self._folder.answer(number).read_bytes())
        except orjson.JSONDecodeError:  # it was killed
            return None
        errors = answer.get("errors")
        if not errors:
            return None
        if unwritable := [one for one in errors if one["code"] == RunUnwritable.code]:
            raise RunUnwritable(unwritable[0]["message"], file=unwritable[0]["file"], hint=unwritable[0]["hint"])
        message = "; ".join(str(one["message"]) for one in errors)
        return Refusal(message=message, cause=_CAUSES.get(errors[0]["code"], "job"))


class ServiceStarts(Starts):
    """Submits runs to a service."""

    def __init__(self, folder: SweepFolder, sweep: Sweep, client: RunClient) -> None:
        self._folder = folder
        self._sweep = sweep
        self._client = client
        self._refusals: dict[int, Refusal] = {}

    def start(self, number: int) -> RunHandle | None:
        """Submit the job, or have the one that the service has go on."""
        run_id = self._sweep.run_id(number)
        self._refusals.pop(number, None)
        try:
            try:
                if self._client.find(run_id).run_id == run_id:
                    return self._started(resume=run_id)
            except UnknownRun:
                pass
            return self._started(job=self._folder.job(number))
        except HostcoreError as error:
            passes = error.code.startswith("service.") or may_pass(error)
            self._refusals[number] = Refusal(message=str(error), cause="busy" if passes else "job")
            return None

    def _started(self, **what: Any) -> RunHandle:
        # A signal ends no submission: those of a sweep are its driver's.
        options = JobOptions(short={"terminal=false": "--quiet"})
        with self._client.start(RunRequest(options=options, **what), Interrupts()) as run:
            return run

    def is_starting(self, number: int) -> bool:  # noqa: ARG002
        """Never: the service has the run when it was submitted."""
        return False

    def refusal(self, number: int) -> Refusal | None:
        """Return the service's error for a trial; None without one."""
        return self._refusals.get(number)
