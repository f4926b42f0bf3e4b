"""The launcher ``slurm``: a batch job that is resumed from its checkpoint when Slurm starts it again."""

import contextlib
import time
from pathlib import Path
from typing import Final

from hostcore_builtin_plugins.run_result import earlier_result, read_log, result_of
from hostcore_engines.slurm import commands
from hostcore_engines.slurm.request import comment_of, job_name, key_of, options_of
from hostcore_engines.slurm.script import BatchScript, log_of, note_of, output_option
from hostcore_engines.slurm.settings import Settings as SlurmSettings
from hostcore_engines.slurm.settings import check_settings
from hostcore_engines.slurm.states import SlurmJob, status_at_the_end, status_under_way
from hostcore_hookspecs import FatalError, LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk

#: How long a shared file system may take to show what a node has written.
_LAG_SECONDS: Final = 60.0
#: Between two looks at a job that was asked to stop; it grows.
_FIRST_LOOK_SECONDS: Final = 0.25
_LAST_LOOK_SECONDS: Final = 5.0


class SlurmLauncher:
    """Submits batch jobs with ``sbatch``, and asks ``scontrol`` about them. Slurm's accounting is not needed."""

    Settings = SlurmSettings

    def __init__(self, *, settings: SlurmSettings | None = None) -> None:
        self._settings = settings or SlurmSettings()
        check_settings(self._settings)

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """See :func:`hostcore_hookspecs.launcher.plan`."""
        resources, settings = ctx.job.resources, self._settings
        script = self._script(ctx)
        where = f"partition {settings.partition}" if settings.partition else "the default partition"
        nodes = f"{resources.num_nodes} node{'s' if resources.num_nodes > 1 else ''}"
        gpus = f" with {resources.gpus_per_node} GPUs" if resources.gpus_per_node else ""
        limit = f", for {settings.time_limit} at a time" if settings.time_limit is not None else ""
        return LaunchPlan(summary=f"Slurm job {job_name(ctx)} in {where}, {nodes}{gpus}{limit}", document=script)

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        """See :func:`hostcore_hookspecs.launcher.launch`."""
        script = self._script(ctx)
        try:
            for folder in ("config", "logs"):
                Path(ctx.run_dir, folder).mkdir(parents=True, exist_ok=True)
            earlier = earlier_result(ctx.run_dir, key_of(ctx.launch_id))
        except OSError as error:
            raise FatalError(
                f"cannot write the launch down: {error}", file=str(error.filename or ctx.run_dir)
            ) from error
        job = self._found(ctx) or commands.submit(script, [output_option(ctx.run_dir) or "--output=/dev/null"], ctx.env)
        log = str(log_of(ctx.run_dir, job))
        ctx.log(f"job {job} of Slurm's runs it; its output goes to {log}")
        return LaunchHandle(
            launcher="slurm",
            id=job,
            details={
                "run_dir": ctx.run_dir,
                "name": job_name(ctx),
                "launch": key_of(ctx.launch_id),
                "earlier_result": earlier,
            },
        )

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        """See :func:`hostcore_hookspecs.launcher.poll`.

        Reads Slurm's record as long as it has one; then the run's result and the script's notes.

        :raises TransientError: Slurm did not answer.
        """
        job_id, run_dir = _job_of(handle), handle.details["run_dir"]
        job = _shown(job_id, handle)
        if job is not None and not job.is_over:
            return status_under_way(job)
        with contextlib.suppress(OSError):
            for name in (run_dir, f"{run_dir}/config"):
                list(Path(name).iterdir())  # NFS looks again at a folder that is listed
        code = _noted_code(run_dir, job_id)
        if job is not None and code is None and job.code is not None and _may_lag(job, run_dir):
            return LaunchStatus(status="running", message=f"job {job_id} has ended; its files are not seen here yet")
        result = result_of(run_dir, handle.details["earlier_result"])
        return status_at_the_end(job, result, code, log=str(log_of(run_dir, job_id)))

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        """See :func:`hostcore_hookspecs.launcher.cancel`.

        The batch script hands SIGINT on to the run, as from Ctrl-C. By force, Slurm ends the job, as ``scancel`` does.

        :raises TransientError: Slurm did not answer.
        """
        job_id = _job_of(handle)
        job = _shown(job_id, handle)
        if job is None or job.is_over:
            return
        if job.is_waiting:
            _take_back(handle)
        elif commands.signal(job_id, "INT") and _has_ended(handle, grace_seconds):
            return
        commands.cancel(job_id)

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        """See :func:`hostcore_hookspecs.launcher.read_logs`: of the first node, and of all starts of the job.

        :param since: A byte offset.
        :raises FatalError: If ``since`` is none.
        """
        return read_log(Path(log_of(handle.details["run_dir"], _job_of(handle))), since)

    def _script(self, ctx: LaunchContext) -> str:
        if "\0" in ctx.run_dir:
            raise FatalError("a run directory's name has no NUL character", file=repr(ctx.run_dir))
        return BatchScript(
            options=options_of(self._settings, ctx),
            run_dir=ctx.run_dir,
            launch=key_of(ctx.launch_id),
            command=list(ctx.command),
            nodes=ctx.job.resources.num_nodes,
            ranks_per_node=ctx.job.resources.ranks_per_node,
            max_restarts=int(ctx.document.get("max_restarts") or 0),
            requeue=self._settings.requeue,
            before=self._settings.before,
        ).text()

    @staticmethod
    def _found(ctx: LaunchContext) -> str | None:
        """The job that an earlier try of this launch has submitted."""
        if not ctx.launch_id:
            return None
        return _claimed(ctx.run_dir, key_of(ctx.launch_id)) or commands.find(comment_of(ctx.launch_id))


def _claimed(run_dir: str, launch: str) -> str | None:
    """The job that has begun a launch."""
    try:
        text = Path(note_of(run_dir, launch)).read_text().strip()
    except OSError:
        return None
    return text if text.isdecimal() else None


def _job_of(handle: LaunchHandle) -> str:
    """The job that runs a launch: the one that has begun it, if an answer of sbatch's was lost."""
    launch = handle.details["launch"]
    return (_claimed(handle.details["run_dir"], launch) if launch else None) or handle.id


def _shown(job_id: str, handle: LaunchHandle) -> SlurmJob | None:
    """The job as Slurm sees it; None if it does not know it, or has given its number to another."""
    job = commands.show(job_id)
    return job if job is not None and job.name == handle.details["name"] else None


def _noted_code(run_dir: str, job_id: str) -> int | None:
    try:
        return int(Path(note_of(run_dir, f"{job_id}.end")).read_text())
    except (OSError, ValueError):
        return None


def _may_lag(job: SlurmJob, run_dir: str) -> bool:
    return Path(run_dir).exists() and job.ended_within(_LAG_SECONDS)


def _take_back(handle: LaunchHandle) -> None:
    """See that no job begins a launch that has not begun."""
    launch = handle.details["launch"]
    if launch:
        with contextlib.suppress(OSError), Path(note_of(handle.details["run_dir"], launch)).open("x") as claim:
            claim.write("cancelled\n")


def _has_ended(handle: LaunchHandle, seconds: float) -> bool:
    """Wait for the end of the job; whether it came."""
    due, pause = time.monotonic() + seconds, _FIRST_LOOK_SECONDS
    while True:
        job = _shown(_job_of(handle), handle)
        if job is None or job.is_over:
            return True
        left = due - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LAST_LOOK_SECONDS)
