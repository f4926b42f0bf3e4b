"""``hostcore list`` and ``hostcore status``."""

import time
from pathlib import Path

import click

from hostcore.checkpoints.find import committed
from hostcore.cli.output import json_option, print_json, print_table, reports_errors
from hostcore.runs.contract import WorkerContract
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.result import RunResult
from hostcore.runs.summary import RunSummary, UnknownRun, list_runs, summarize


@click.command("list")
@json_option
@reports_errors
def list_command(as_json: bool) -> None:
    """List the runs in the runs folder (HOSTCORE_RUNS_DIR, or ./runs), newest first."""
    runs, broken = list_runs(runs_dir())
    if as_json:
        print_json({"runs": [run.as_dict() for run in runs]})
    elif runs:
        print_table(
            ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED"],
            [(run.run_id, run.status, run.trainer, _steps(run), run.attempt, _when(run.submitted_ms)) for run in runs],
        )
    else:
        click.echo(f"no runs in {runs_dir()}", err=True)
    for one in broken:
        click.echo(f"unreadable: {one['path']}: {one['error']}", err=True)


@click.command("status")
@click.argument("run")
@json_option
@reports_errors
def status_command(run: str, as_json: bool) -> None:
    """Show how RUN is doing, or how it ended. An unknown run exits 2."""
    if "/" in run or run in ("", ".", ".."):
        raise UnknownRun(f"{run!r} is no run id", hint="`hostcore list` shows the runs there are")
    directory = RunDirectory(runs_dir() / run)
    summary = summarize(directory)
    result = RunResult.read(directory.result)
    if result and result.attempt != summary.attempt:
        result = None  # it tells of an attempt before
    checkpoints = committed(_checkpoints(directory, summary.attempt))
    if as_json:
        steps = [{"step": one.step, "epoch": one.epoch, "final": one.final} for one in checkpoints]
        print_json({**summary.as_dict(), "metrics": result.metrics if result else {}, "checkpoints": steps})
        return
    click.echo(f"{click.style(summary.status, bold=True)}  {summary.run_id}")
    lines = [("trainer", summary.trainer), ("steps", _steps(summary)), ("attempt", str(summary.attempt))]
    lines.append(("submitted", _when(summary.submitted_ms)))
    if summary.ended_ms:
        lines.append(("ended", _when(summary.ended_ms)))
    if result:
        lines += [("reason", result.reason)] if result.reason else []
        lines += [("error", f"{result.error.type}: {result.error.message}")] if result.error else []
        lines += [(name, "not finite" if value is None else f"{value:.6g}") for name, value in result.metrics.items()]
    lines.append(("checkpoints", ", ".join(str(one.step) for one in checkpoints) or "none"))
    lines.append(("everything", str(directory.path)))
    for name, value in lines:
        click.echo(f"  {name:<12}{value}")


def _checkpoints(directory: RunDirectory, attempt: int) -> Path:
    """Where an attempt wrote its checkpoints: its environment may have said so."""
    contract = directory.contract(attempt, 0)
    return Path(WorkerContract.read(contract).checkpoints_dir) if contract.exists() else directory.checkpoints


def _steps(run: RunSummary) -> str:
    return f"{run.step:,}/{run.max_steps:,}" if run.max_steps else f"{run.step:,}"


def _when(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
