"""``hostcore validate``."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli.job_options import JobCommand, job_argument, job_options, runs_dir_option
from hostcore.cli.output import json_option, plugins_print_aside, print_json, reports_errors, tell_aside, verbose_option
from hostcore.cli.server_option import run_client, server_option

if TYPE_CHECKING:
    from hostcore.runs.result import RunResult
    from hostcore.supervisor.plan import RunPlan


@click.command("validate", cls=JobCommand, short_help="Check a job without starting it; show the plan.")
@job_argument
@job_options
@runs_dir_option
@server_option
@json_option
@verbose_option
@reports_errors
def validate_command(
    job: Path,
    runs: Path,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    **options: object,
) -> None:
    """Check the job in the file JOB: everything that can be known before it starts.

    Imports the plugins and opens the data in a process of its own. Shows the plan, or all errors at once (exit code 2).
    """
    from hostcore.cli.plan_lines import print_launch, print_plan
    from hostcore.cli.planning import plan_of
    from hostcore.job.names import is_builtin
    from hostcore.supervisor.authorizing import authorize_here
    from hostcore.supervisor.check import check_job
    from hostcore.supervisor.opening import examine_run
    from hostcore.supervisor.remote.adopting import find_in_mirror
    from hostcore.supervisor.remote.bringing import examine_surroundings
    from hostcore.supervisor.submit import dry_run, require_no_engine

    if server:
        run_client(server).validate(job, options, as_json=as_json)
        return
    with plugins_print_aside(as_json):
        plan = plan_of(job, options, runs=runs)
        require_no_engine(plan)
        authorize_here(plan)
        plan = examine_surroundings(plan, tell_aside)
        mirrored = find_in_mirror(plan)
    finished = None if mirrored else examine_run(plan)
    checked = check_job(plan)
    checked = {**checked, "deprecated": [*checked["deprecated"], *plan.deprecated]}
    launch = None if is_builtin(plan.spec.launcher.use, "local") else dry_run(plan)
    if as_json:
        launched = {"launch": attrs.asdict(launch)} if launch else {}
        print_json({"job": plan.spec.to_json(), "directory": str(plan.directory.path), **checked, **launched})
    else:
        here = [*plan.reporters, *plan.uploaders, *plan.resolvers]
        serving = [(one.kind.label, one.ref.provenance) for one in here]
        print_plan(plan.spec, checked, _fate(plan, finished, mirrored), serving=serving)
        if launch is not None:
            print_launch(launch)


def _fate(plan: "RunPlan", finished: "RunResult | None", mirrored: str) -> str:
    if mirrored:
        return f"is brought here from {mirrored}, and goes on in {plan.directory.path}"
    if finished:
        return f"finished already at step {finished.step:,}: nothing would be done"
    if plan.directory.path.exists():
        return f"goes on in {plan.directory.path}"
    return f"new, in {plan.directory.path}"
