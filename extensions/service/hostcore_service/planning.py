"""From a stored job to what a launcher needs. Nothing of the job's plugins is imported but the launcher.

Which launcher that is stands in the row; what it is set up with, in the operator's file alone.
"""

from pathlib import Path
from typing import Final

from hostcore.plugins.installed import Discovered
from hostcore.plugins.launching import JobLauncher
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.opening import RunConflict
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore_service.launchers import launcher_use, operators_launcher
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob

#: The folders of a run directory that a service writes into.
_WRITTEN: Final = ("config", "control", "logs", "attempts")


def directory_of(job: StoredJob, settings: Settings) -> RunDirectory:
    """Return the run directory of a job."""
    return RunDirectory(settings.runs / job.run_id)


def plan_stored_job(job: StoredJob, settings: Settings, discovered: Discovered | None = None) -> RunPlan:
    """The plan of a stored job. Its relative paths start in its run directory, since it has no file.

    :param discovered: The plugins that are installed; they are looked for if not given.
    :raises HostcoreError: When one of its plugins is not installed any more, or its launcher is not the operator's; or
        when the job has put links into its run directory.
    """
    run_dir = directory_of(job, settings).path
    _require_no_links(run_dir)
    document = {**job.job, "launcher": launcher_use(job.launcher, settings.operator)}
    return make_plan(document, runs=settings.runs, job_dir=run_dir, load=False, discovered=discovered)


def _require_no_links(run_dir: Path) -> None:
    """See that what is written into a run directory comes to lie there: an earlier attempt could have written links.

    :raises RunConflict: When there is one.
    """
    link = next((name for name in _WRITTEN if (run_dir / name).is_symlink()), None)
    if link is not None:
        raise RunConflict(
            f"the job has put a link in place of the folder {link} of its run directory",
            file=str(run_dir / link),
            hint="submit the job anew, under another run_id",
        )


def launcher_for(job: StoredJob, settings: Settings, discovered: Discovered) -> JobLauncher:
    """The launcher of a stored job, as the operator's file sets it up now.

    :raises HostcoreError: When it is not the operator's or not installed any more, or its settings are wrong.
    """
    return operators_launcher(job.launcher, settings.operator, discovered)
