"""``hostcore validate``."""

from pathlib import Path

import attrs
import click

from hostcore.cli.job_options import JobCommand, JobOptions, job_argument, job_options, runs_dir_option
from hostcore.cli.output import json_option, plugins_print_aside, print_json, reports_errors, verbose_option, warn
from hostcore.cli.server_option import run_client, server_option


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
    *,
    runs: Path,
    server: str | None,
    as_json: bool,
    options: JobOptions,
) -> None:
    """Check the job in the file JOB: everything that can be known before it starts.

    Imports the plugins and opens the data in a process of its own. Shows the plan, or all errors at once (exit code 2).
    """
    from hostcore.cli.plan_lines import print_validation
    from hostcore.job.pointers import escaped

    with plugins_print_aside(as_json):
        found = run_client(server, runs).validate(job, options)
    if as_json:
        launch = {"launch": attrs.asdict(found.launch)} if found.launch else {}
        places = {f"/{escaped(key)}": origin for key, origin in found.spec.origins.items()}
        origins = {"origins": places} if places else {}
        merged = found.spec.to_json()
        print_json({"job": merged, **origins, "directory": found.directory, **(found.checked or {}), **launch})
    else:
        print_validation(found)
    for sentence in found.unchecked:
        warn(f"unchecked: {sentence}")
