"""Submitting a run: its directory and its record are made here, and a launcher starts the supervisor that begins it.

::

    config/run.json ▸ config/launch.json ▸ launch() ▸ config/launch.json with the handle
                                           └▶ hostcore resume <run directory>: claims the attempt, like any other

The launched process adopts the run from its mirror, if the run lies there alone. Where it does not see this directory,
the directory here only has the submission, and the reports of the launcher and the mirror.
"""

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.events.writer import now_ms
from hostcore.job.names import engine_name, is_builtin
from hostcore.job.spec import JobSpec
from hostcore.plugins.launching import JobLauncher, launcher_of
from hostcore.runs.attempts import next_attempt, remove_orphaned
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import read_document, write_document
from hostcore.runs.launch import Launch
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.documents import write_record
from hostcore.supervisor.opening import examine_run, make_directory
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.adopting import newest_attempt_to_adopt
from hostcore.supervisor.writable import file_errors
from hostcore_hookspecs.errors import TransientError
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle, LaunchPlan

#: A launch whose engine does not answer is tried again after so long, in seconds: the engine may have taken it.
_AGAIN_SECONDS: Final = (1.0, 4.0)


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


def submit(
    plan: RunPlan,
    *,
    total_steps: int,
    tell: Callable[[str], None],
    name: str | None = None,
    launch_id: str | None = None,
    launcher: JobLauncher | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> Submission | RunResult:
    """Record a run, and have its launcher start a supervisor for it.

    :param plan: Of a job that was checked.
    :param total_steps: The steps of the whole run, as the check found; 0 if that is not known.
    :param tell: Called with a line, now and then, of what the launcher does.
    :param name: What the engine is to call it; made from the run_id if not given.
    :param launch_id: Of this submission. One that was cut short is continued by a submission with the same id; a new
        id is made if not given.
    :param launcher: The job's, if already loaded. What it started under the same id before is asked of it then,
        since the run directory, which the job can write, is not trusted.
    :param recorded: See :class:`~hostcore.runs.launch.Launch`.
    :return: The submission; or the result of the run, if it is finished already.
    :raises RunConflict, CheckpointError, RunUnwritable: See :func:`hostcore.supervisor.opening.examine_run`.
    :raises TransientError: The launcher's engine did not answer. With a ``launch_id``, what was recorded stays, for the
        caller's next try; without, the launch was tried three times.
    :raises HostcoreError: When the supervisor cannot be started; then everything is as it was before.
    """
    directory = plan.directory
    cut_short = _same_launch(directory, launch_id)
    if launcher is None and cut_short is not None and cut_short.handle is not None:
        # The submitting process died before it could report it.
        return Submission(directory=directory, attempt=cut_short.attempt, handle=cut_short.handle)
    mirrored: int | None = 0
    if cut_short is None:
        mirrored = newest_attempt_to_adopt(plan, tell)
        finished = examine_run(plan, elsewhere=mirrored != 0, tell=tell)
        if finished is not None:
            return finished
        remove_orphaned(directory)
    launcher = launcher or launcher_of(plan.spec.launcher, plan.discovered, job_dir=plan.spec.job_dir)
    with file_errors(directory):
        before = _Before.of(directory)
        launch = cut_short or Launch(
            attempt=max(next_attempt(directory), (mirrored or 0) + 1),
            submitted_ms=now_ms(),
            launch_id=launch_id or f"{directory.run_id}.{secrets.token_hex(8)}",
            sees_run_dir=launcher.sees_run_dir,
            recorded=recorded,
        )
        try:
            if cut_short is None:
                write_record(plan, before.record, started_ms=now_ms(), attempt=launch.attempt, total_steps=total_steps)
                launch.write(directory.launch)  # before the launch: the supervisor looks whether it is awaited
            context = launch_context(plan, launch, name=name or _name_of(plan, before), tell=tell)
            tell(launcher.plan(context).summary)
            handle = _launched(launcher, context, tell, again=() if launch_id else _AGAIN_SECONDS)
        except BaseException as error:
            # An engine that did not answer may have taken it: a retry under the same id finds out.
            if not (launch_id and isinstance(error, TransientError)):
                before.restore()
            raise
        # Read again: what was launched may have adopted the run, and begins a later attempt.
        launch = attrs.evolve(Launch.read(directory.launch) or launch, handle=handle)
        launch.write(directory.launch)
    return Submission(directory=directory, attempt=launch.attempt, handle=handle)


def _launched(
    launcher: JobLauncher, context: LaunchContext, tell: Callable[[str], None], *, again: Sequence[float]
) -> LaunchHandle:
    """Launch, with retries. A launcher finds the launch of an earlier try under the same id.

    :param again: Seconds before each further try.
    """
    for seconds in again:
        try:
            return launcher.launch(context)
        except TransientError as error:
            tell(f"{error.message}; trying again in {seconds:g} s")
            time.sleep(seconds)
    return launcher.launch(context)


def dry_run(plan: RunPlan) -> LaunchPlan:
    """Return the plan of a job's launcher, without launching.

    :raises HostcoreError: When it would refuse.
    """
    launcher = launcher_of(plan.spec.launcher, plan.discovered, job_dir=plan.spec.job_dir)
    attempt = next_attempt(plan.directory)
    launch = Launch(attempt=attempt, submitted_ms=now_ms(), sees_run_dir=launcher.sees_run_dir)
    return launcher.plan(launch_context(plan, launch, name=engine_name(plan.spec.run_id), tell=lambda _: None))


def require_no_engine(plan: RunPlan) -> None:
    """See that a job that this machine is to run asks for nothing that takes an engine.

    :raises HostcoreError: Its launcher's objection.
    """
    spec = plan.spec
    if spec.resources is not None and spec.world_size is None and is_builtin(spec.launcher.use, "local"):
        dry_run(plan)


def _same_launch(directory: RunDirectory, launch_id: str | None) -> Launch | None:
    """The launch of that id, if an earlier try has recorded it."""
    launch = Launch.read(directory.launch) if launch_id else None
    return launch if launch and launch.launch_id == launch_id else None


def _name_of(plan: RunPlan, before: "_Before") -> str:
    """The engine may remember what it ran under the same name."""
    if before.record is None:
        return engine_name(plan.spec.run_id)
    return f"{engine_name(plan.spec.run_id)[:58].rstrip('-')}-{secrets.token_hex(2)}"


def launch_context(plan: RunPlan, launch: Launch, *, name: str, tell: Callable[[str], None]) -> LaunchContext:
    """Build the context of a launcher."""
    run_dir, record = str(plan.directory.path), str(plan.directory.record)
    # Safe path (-P): the working directory may have a module of any name.
    hostcore = [sys.executable, "-P", "-m", "hostcore"]
    return LaunchContext(
        job=plan.job,
        job_path=record,
        run_dir=run_dir,
        command=[*hostcore, "resume", run_dir, "--launched"] if launch.sees_run_dir else [*hostcore, "run", record],
        env=dict(plan.job.resources.env),
        log=tell,
        document=handed_on(plan.spec),
        launch_id=launch.launch_id,
        name=name,
    )


def handed_on(spec: JobSpec) -> dict[str, Any]:
    """A job for the supervisor that is launched for it: it runs the run where it arrives, at the recorded place."""
    job = spec.to_json()
    for key in ("launcher", "resources"):
        job.pop(key, None)
    return {**job, "run_id": spec.run_id}


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
        if directory.is_free:
            make_directory(directory)
            return cls(directory=directory, record=None, launch=None)
        launch = read_document(directory.launch) if directory.launch.exists() else None
        return cls(directory=directory, record=read_document(directory.record), launch=launch)

    def restore(self) -> None:
        """Undo the submission."""
        if self.record is None:
            self.directory.remove()
            return
        write_document(self.directory.record, self.record)
        if self.launch is None:
            self.directory.launch.unlink(missing_ok=True)
        else:
            write_document(self.directory.launch, self.launch)
