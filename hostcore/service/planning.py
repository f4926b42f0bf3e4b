"""From a stored job to what a launcher needs. Nothing of the job's plugins is imported but the launcher."""

from hostcore.plugins.discover import Discovered
from hostcore.plugins.launching import Launcher, launcher_of
from hostcore.runs.directory import RunDirectory
from hostcore.service.settings import Settings
from hostcore.service.store.job import StoredJob
from hostcore.supervisor.plan import RunPlan, make_plan


def directory_of(job: StoredJob, settings: Settings) -> RunDirectory:
    """Where the run of a job lies."""
    return RunDirectory(settings.runs / job.run_id)


def plan_of(job: StoredJob, settings: Settings, discovered: Discovered | None = None) -> RunPlan:
    """The plan of a stored job. Its relative paths start in its run directory, since it has no file.

    :param discovered: The plugins that are installed; they are looked for if not given.
    :raises HostcoreError: When one of its plugins is not installed any more.
    """
    run_dir = directory_of(job, settings).path
    return make_plan(job.job, runs=settings.runs, job_dir=run_dir, load=False, discovered=discovered)


def launcher_for(job: StoredJob, settings: Settings, discovered: Discovered) -> Launcher:
    """The launcher of a stored job.

    :raises HostcoreError: When it is not installed any more, or its settings are wrong.
    """
    plan = plan_of(job, settings, discovered)
    return launcher_of(plan.spec, discovered, job_dir=plan.job_dir)
