"""``hostcore doctor``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli.job_options import JobCommand, JobOptions, job_options, runs_dir_option
from hostcore.cli.output import (
    echo,
    json_option,
    plugins_print_aside,
    print_error,
    print_json,
    reports_errors,
    style,
    verbose_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hostcore.supervisor.plan import RunPlan
    from hostcore_inspect.doctor.finding import DoctorFinding
    from hostcore_inspect.doctor.job import JobReport

_MARKS = {"ok": "ok", "warning": "warn", "failed": "FAILED"}
_COLORS = {"ok": "green", "warning": "yellow", "failed": "red"}
_MARK_WIDTH, _NAME_WIDTH = 6, 14


@click.command("doctor", cls=JobCommand, short_help="Check this machine, or whether a job could run on it.")
@click.argument("job", type=click.Path(path_type=Path), required=False)
@job_options
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each thing that may hang is waited for.",
)
@runs_dir_option
@json_option
@verbose_option
@reports_errors
def doctor_command(
    job: Path | None, *, timeout_seconds: float, runs: Path, as_json: bool, verbose: bool, options: JobOptions
) -> None:
    """Check this machine: Python, torch, devices, ranks, disk, memory, plugins.

    Has every device multiply matrices and compares the results with the CPU's, has several processes add up a vector,
    and writes to the runs folder as a checkpoint does. Changes nothing, and ends whatever hangs.

    With the job file JOB, also checks it as `hostcore validate` does, and whether this machine has what it asks for.

    Exits 0 if nothing is broken, whatever the warnings; 1 if something is that jobs (or JOB) need; 2 if JOB is invalid.
    """
    from hostcore.cli.planning import plan_job
    from hostcore.runs.result import FAILED, INVALID

    plan = None
    if job is not None:
        with plugins_print_aside(as_json):
            plan = plan_job(job, options, runs=runs)
    findings, report = _examine(plan, runs, timeout_seconds, printing=not as_json)
    ok = all(one.status != "failed" for one in findings)
    if as_json:
        print_json({"checks": [one.as_dict() for one in findings], "ok": ok})
    else:
        for error in report.errors if report and report.invalid else ():
            print_error(error, verbose=verbose)
        _sum_up(findings)
    if report and report.invalid:
        sys.exit(INVALID)
    if not ok:
        sys.exit(FAILED)


def _examine(
    plan: "RunPlan | None", runs: Path, timeout_seconds: float, *, printing: bool
) -> "tuple[Sequence[DoctorFinding], JobReport | None]":
    """Run all checks; print each finding as it comes if ``printing``."""
    from hostcore_inspect.doctor.job import examine_job, for_job, may_be_needless
    from hostcore_inspect.doctor.machine import examine_machine

    machine: list[DoctorFinding] = []
    known = 0  # from the first on: what they come to, with this job
    for one in examine_machine(runs, timeout_seconds=timeout_seconds):
        machine.append(one)
        known += plan is None or not may_be_needless(one)
        if printing and known == len(machine):
            _print(one)
    if plan is None:
        return machine, None
    report = examine_job(plan, machine, timeout_seconds=timeout_seconds)
    findings = [*for_job(machine, report), *report.findings]
    for one in findings[known:] if printing else ():
        _print(one)
    return findings, report


def _print(finding: "DoctorFinding") -> None:
    mark = style(_MARKS[finding.status].ljust(_MARK_WIDTH), fg=_COLORS[finding.status])
    echo(f"{mark}  {finding.name.ljust(_NAME_WIDTH)}  {finding.finding}")
    if finding.hint and finding.status != "ok":
        echo(f"{'':{_MARK_WIDTH}}  {'':{_NAME_WIDTH}}  {style('do:', bold=True)} {finding.hint}")


def _sum_up(findings: "Sequence[DoctorFinding]") -> None:
    failed, warned = (sum(one.status == status for one in findings) for status in ("failed", "warning"))
    warnings = f", {warned} warning{'s' if warned > 1 else ''}" if warned else ""
    if failed:
        verdict = f"{failed} of {len(findings)} checks FAILED{warnings}"
    else:
        verdict = f"nothing is broken: {len(findings)} checks{warnings}"
    echo(f"\n{style(verdict, fg='red' if failed else 'green', bold=True)}")
