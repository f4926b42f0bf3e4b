"""``hostcore run``."""

import os
import shlex
import sys
from pathlib import Path

import click

from hostcore.cli.job_options import JobCommand, job_argument, job_options, plan_of
from hostcore.cli.output import json_option, plugins_print_aside, print_json, reports_errors, verbose_option
from hostcore.runs.result import SUCCEEDED, RunResult
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.supervise import supervise


@click.command("run", cls=JobCommand)
@job_argument
@job_options
@click.option("--in-process", is_flag=True, help="Train in this process, for a debugger.")
@json_option
@verbose_option
@reports_errors
def run_command(job: Path, in_process: bool, as_json: bool, verbose: bool, **options: object) -> None:  # noqa: ARG001
    """Run the job in the file JOB (JSON or YAML), watch it, and report how it ended.

    Exits 0 when the run succeeded, 1 when it failed, 2 when the job is invalid (nothing was started then), 3 when a
    policy refused it, 75 when it was preempted and 130 when it was cancelled; both can be resumed.
    """
    with plugins_print_aside(as_json):
        plan = plan_of(job, options)
    if sys.stderr.isatty():
        click.echo(f"{plan.spec.run_id}  starting", err=True)  # importing torch takes seconds
    sys.exit(run_plan(plan, in_process=in_process, as_json=as_json))


def run_plan(plan: RunPlan, *, in_process: bool = False, as_json: bool = False) -> int:
    """Run a plan to its end and report it.

    :return: The exit code.
    """
    with Interrupts() as interrupts, plugins_print_aside(as_json):
        opened = open_run(plan)
        if isinstance(opened, RunResult):
            result = opened
        elif in_process:
            from hostcore.in_process import run_here

            result = run_here(plan, opened, interrupts)
        else:
            result = supervise(plan, opened, interrupts)
    finished_before = result is opened
    _report(result, plan, as_json=as_json, finished_before=finished_before)
    return SUCCEEDED if finished_before else result.exit_code


def _report(result: RunResult, plan: RunPlan, *, as_json: bool, finished_before: bool = False) -> None:
    """Say how it ended: an error on standard error, the summary on standard output."""
    if result.error and not as_json:
        _print_error(result)
    if as_json:
        print_json(result.as_dict())
        return
    color = {"succeeded": "green", "failed": "red"}.get(result.status, "yellow")
    head = click.style(result.status, fg=color, bold=True)
    click.echo(f"{head}  {result.run_id}{'  (finished before: nothing to do)' if finished_before else ''}")
    for name, value in _summary(result, plan):
        click.echo(f"  {name:<12}{value}")


def _print_error(result: RunResult) -> None:
    error = result.error
    assert error is not None
    if error.traceback:
        click.echo(error.traceback.rstrip("\n"), err=True)
    where = f" (in {error.plugin})" if error.plugin else ""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error.type}: {error.message}{where}", err=True)
    if error.hint:
        click.echo(f"    hint: {error.hint}", err=True)


def _summary(result: RunResult, plan: RunPlan) -> list[tuple[str, str]]:
    directory = plan.directory
    seconds = (result.ended_ms - result.started_ms) / 1000
    lines = [("steps", f"{result.step:,} (epoch {result.epoch + 1}), {seconds:.1f} s")]
    if result.reason:
        lines.insert(0, ("reason", result.reason))
    lines += [(name, "not finite" if value is None else f"{value:.6g}") for name, value in result.metrics.items()]
    if result.final_checkpoint:
        lines.append(("checkpoint", os.path.normpath(directory.path / result.final_checkpoint)))
    if directory.loss_plot.exists():
        lines.append(("loss curve", str(directory.loss_plot)))
    output = directory.rank_output(result.attempt, 0)
    if output.exists() and output.stat().st_size:
        lines.append(("output", str(output)))
    lines.append(("everything", str(directory.path)))
    if result.status != "succeeded" and result.final_checkpoint:
        lines.append(("to go on", _go_on(result, plan)))
    return [(name, _relative(value)) for name, value in lines]


def _go_on(result: RunResult, plan: RunPlan) -> str:
    """The command that continues the run."""
    command = ["hostcore", *sys.argv[1:]] if sys.argv[1:2] == ["run"] else ["the", "same", "again"]
    if f"run_id={result.run_id}" not in command:
        command += ["--set", f"run_id={result.run_id}"]
    if plan.spec.resume_from_checkpoint not in (True, "auto"):
        command += ["--set", "resume_from_checkpoint=auto"]
    return shlex.join(command)


def _relative(text: str) -> str:
    """A path as the user would type it."""
    try:
        return str(Path(text).relative_to(Path.cwd())) if text.startswith("/") else text
    except ValueError:
        return text
