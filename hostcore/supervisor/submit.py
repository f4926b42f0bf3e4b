"""Submitting a run: its directory and its record are made here, and a launcher starts the supervisor that begins it.

::

    config/run.json ▸ config/launch.json ▸ launch() ▸ config/launch.json with the handle
                                            └▶ hostcore resume <run directory>: claims the attempt, like any other
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from hostcore import __version__
from hostcore.events.writer import now_ms
from hostcore.plugins.discover import discover
from hostcore.plugins.launching import launcher_of
from hostcore.plugins.provenance import provenance
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import read_document, write_document
from hostcore.runs.launch import Launch
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.supervisor.opening import RunConflict, examine_run, named_checkpoint
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.writable import file_errors
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle


@attrs.frozen(kw_only=True)
class Submission:
    """A run whose supervisor is on its way."""

    directory: RunDirectory
    attempt: int
    handle: LaunchHandle

    def as_dict(self) -> dict[str, Any]:
        """The submission as plain JSON."""
        return {
            "run_id": self.directory.run_id,
            "status": "submitted",
            "directory": str(self.directory.path),
            "launch": attrs.asdict(self.handle),
        }


def submit(plan: RunPlan, *, total_steps: int, tell: Callable[[str], None]) -> Submission | RunResult:
    """Record a run, and have its launcher start a supervisor for it.

    :param plan: Of a job that was checked.
    :param total_steps: The steps of the whole run, as the check found.
    :param tell: Called with a line, now and then, of what the launcher does.
    :return: The submission; or the result of the run, if it is finished already.
    :raises RunConflict, CheckpointError, RunUnwritable: See :func:`hostcore.supervisor.opening.examine_run`.
    :raises HostcoreError: When the supervisor cannot be started; then everything is as it was before.
    """
    finished = examine_run(plan)
    if finished is not None:
        return finished
    directory = plan.directory
    with file_errors(directory):
        before = _Before.of(directory)
        attempt = newest_attempt(directory.attempts) + 1
        try:
            _record(plan, attempt, before, total_steps=total_steps)
            handle = _launch(plan, tell)
        except BaseException:
            before.restore()
            raise
        Launch(attempt=attempt, submitted_ms=now_ms(), handle=handle).write(directory.launch)
    return Submission(directory=directory, attempt=attempt, handle=handle)


def _record(plan: RunPlan, attempt: int, before: "_Before", *, total_steps: int) -> None:
    earlier = before.record or {}
    RunRecord(
        job=plan.spec.to_json(),
        job_dir=str(plan.job_dir),
        plugins=[attrs.asdict(provenance(one.ref, job_dir=plan.job_dir)) for one in plan.selected],
        environment={"hostcore": __version__},
        parent=earlier.get("parent") or named_checkpoint(plan.spec),
        submitted_ms=earlier.get("submitted_ms") or now_ms(),
        total_steps=total_steps,
    ).write(plan.directory.record)
    # Before the launch: the supervisor looks whether it is awaited.
    Launch(attempt=attempt, submitted_ms=now_ms()).write(plan.directory.launch)


def _launch(plan: RunPlan, tell: Callable[[str], None]) -> LaunchHandle:
    launcher = launcher_of(plan.spec, discover(), job_dir=plan.job_dir)
    context = LaunchContext(
        job=plan.job,
        job_path=str(plan.directory.record),
        run_dir=str(plan.directory.path),
        # Safe path (-P): the working directory may have a module of any name.
        command=[sys.executable, "-P", "-m", "hostcore", "resume", str(plan.directory.path), "--launched"],
        env={},
        log=tell,
    )
    tell(launcher.plan(context).summary)
    return launcher.launch(context)


@attrs.frozen(kw_only=True)
class _Before:
    """A run before it was submitted, to go back to."""

    directory: RunDirectory
    #: None for a new run.
    record: Mapping[str, Any] | None
    launch: Mapping[str, Any] | None

    @classmethod
    def of(cls, directory: RunDirectory) -> "_Before":
        """Read what there is; make the directory if there is nothing."""
        if not directory.path.exists():
            try:
                directory.make()
            except FileExistsError as error:
                raise RunConflict(
                    f"the run {directory.run_id!r} was just started by somebody else", file=str(directory.path)
                ) from error
            return cls(directory=directory, record=None, launch=None)
        launch = read_document(directory.launch) if directory.launch.exists() else None
        return cls(directory=directory, record=read_document(directory.record), launch=launch)

    def restore(self) -> None:
        """Undo the submission."""
        if self.record is None:
            shutil.rmtree(self.directory.path, ignore_errors=True)
            return
        write_document(self.directory.record, self.record)
        if self.launch is None:
            self.directory.launch.unlink(missing_ok=True)
        else:
            write_document(self.directory.launch, self.launch)
