"""``hostcore verify``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors, style, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.summary import RunSummary
    from hostcore.verification.checks import Check
    from hostcore.verification.log_record import LogRecord

_SHOWN = {"failed": "FAILED"}
_COLORS = {"failed": "red", "warning": "yellow", "ok": "green"}


@click.command("verify", short_help="Prove that a run has lost, skipped and repeated nothing.")
@click.argument("run", shell_complete=completion.runs)
@runs_dir_option
@json_option
@reports_errors
def verify_command(run: str, runs: Path, as_json: bool) -> None:
    """Prove that RUN has lost, skipped and repeated nothing.

    Reads every byte of its checkpoints and compares it with the commit records; recomputes which rows of the data it
    should have been trained on, and compares; and reads its logs from end to end. Changes nothing.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 if everything is as it should be, 1 if something
    is not, and 2 if there is no such run.
    """
    from hostcore.runs.find import find_run
    from hostcore.runs.result import FAILED

    directory = find_run(run, runs)
    summary, checks = _examined(directory)
    ok = all(check.status != "failed" for check in checks)
    if as_json:
        print_json({"run_id": directory.run_id, "ok": ok, "checks": [check.as_dict() for check in checks]})
    else:
        _tell(checks, directory, ok=ok, running=summary.status == "running")
    if not ok:
        sys.exit(FAILED)


def _examined(directory: "RunDirectory") -> "tuple[RunSummary, list[Check]]":
    """The run and its checks; made again if an attempt has begun meanwhile, since they would be of two attempts."""
    from hostcore.runs.attempts import newest_attempt
    from hostcore.runs.summary import summarize

    while True:
        summary = summarize(directory)
        checks = list(_checks(directory, summary))
        if newest_attempt(directory.attempts) <= summary.attempt:
            return summary, checks


def _checks(directory: "RunDirectory", summary: "RunSummary") -> "Iterator[Check]":
    from hostcore.runs.contract import artifact_folders
    from hostcore.runs.record import RunRecord
    from hostcore.runs.result import RunResult
    from hostcore.verification.checkpoint_checks import check_story, examine_checkpoints
    from hostcore.verification.checks import judged
    from hostcore.verification.log_checks import check_log, check_retrained
    from hostcore.verification.order_checks import check_order, owed_of

    running = summary.status == "running"
    # The result before the log, which has its end by then, and the log before the checkpoints: what is saved after it
    # was read is more than it says, never less.
    result = RunResult.read(directory.result)
    log = _log_of(directory)
    checkpoints, _ = artifact_folders(directory, summary.attempt)
    examined = examine_checkpoints(checkpoints, root=directory.path, running=running)
    yield from examined.checks
    yield from check_order(examined.whole, root=directory.path)
    if log is None:
        should_be = bool(examined.whole) or (not running and _has_written(directory))
        problems = ["there is none"] if should_be else []
        yield judged("log.sequence", problems, otherwise="nothing has happened yet", path="logs/events.jsonl")
        return
    attempt, whole = summary.attempt, examined.whole
    yield from check_log(directory, log, result, checkpoints=whole, newest_attempt=attempt, running=running)
    record = RunRecord.read(directory.record)
    yield from check_retrained(directory, log, record)
    keep = record.job.get("keep_checkpoints", 1)
    yield from check_story(examined, log, keep=keep, newest_attempt=summary.attempt, running=running)
    yield log.due.check(left=owed_of(examined.whole[-1]) if examined.whole else ())


def _has_written(directory: "RunDirectory") -> bool:
    """Whether there is something that an event log would tell of."""
    return directory.result.exists() or any(directory.logs.glob("rank-*.jsonl"))


def _log_of(directory: "RunDirectory") -> "LogRecord | None":
    from hostcore.verification.log_record import LogRecord

    return LogRecord.read(directory.events) if directory.events.exists() else None


def _tell(checks: "list[Check]", directory: "RunDirectory", *, ok: bool, running: bool) -> None:
    """Print the checks for people, and what they come to."""
    from hostcore.cli.wording import NOTHING
    from hostcore.verification.log_checks import UNSEEN

    rows = [(_SHOWN.get(one.status, one.status), one.id, one.path or NOTHING, one.message) for one in checks]
    head, *lines = table(["", "CHECK", "WHERE", "FOUND"], rows)
    echo(head)
    for check, line in zip(checks, lines, strict=True):
        echo(style(line, fg=_COLORS["failed"]) if check.status == "failed" else line)
    failed = sum(check.status == "failed" for check in checks)
    so_far = " so far; it runs" if running else ""
    unseen = f"; {UNSEEN}" if any(check.message.startswith(UNSEEN) for check in checks) else ""
    verdict = f"nothing lost, skipped or repeated{so_far}{unseen}" if ok else f"{failed} of {len(checks)} checks FAILED"
    echo(f"\n{style(verdict, fg='green' if ok else 'red', bold=True)}  {directory.run_id}")
