"""The options by which ``run`` and ``validate`` change a job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hostcore.supervisor.plan import RunPlan, make_plan

F = TypeVar("F", bound=Callable[..., Any])

job_argument = click.argument("job", type=click.Path(path_type=Path))

_OPTIONS = (
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the job; repeatable."),
    click.option("--profile", metavar="NAME", help="Apply one of the job's profiles."),
    click.option("--devices", metavar="LIST", help="The devices, comma separated: cpu, cuda, cuda:1, mps."),
    click.option("--resume", is_flag=True, help="Go on with the run of the job's run_id; there must be one."),
    click.option("--from", "from_checkpoint", metavar="CKPT", help="Start from another run's checkpoint."),
    click.option("--weights", metavar="FILE", help="Initial weights for the trainer."),
)


def job_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def plan_of(job: Path, options: dict[str, Any]) -> RunPlan:
    """The plan of a job file with the options applied.

    :raises HostcoreError: Everything that is wrong with the job.
    """
    if options["resume"] and options["from_checkpoint"]:
        raise click.UsageError(
            "--resume and --from exclude each other: one continues a run, the other begins a new one"
        )
    overrides = list(options["overrides"])
    if options["devices"]:
        overrides += ["device=null", f"devices={json.dumps(options['devices'].split(','))}"]
    if options["resume"]:
        overrides.append("resume_from_checkpoint=true")
    if options["from_checkpoint"]:
        overrides.append(f"resume_from_checkpoint={json.dumps(options['from_checkpoint'])}")
    if options["weights"]:
        overrides.append(f"weights={json.dumps(options['weights'])}")
    return make_plan(job, overrides=overrides, profile=options["profile"])
