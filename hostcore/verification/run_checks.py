"""All checks of a run, in the order in which they may be read while it runs."""

from collections.abc import Iterator

from hostcore.runs.attempts import newest_attempt
from hostcore.runs.contract import artifact_folders
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.summary import RunSummary, summarize
from hostcore.verification.checkpoint_checks import check_story, examine_checkpoints
from hostcore.verification.checks import RunCheck, judged
from hostcore.verification.log_checks import check_log, check_retrained
from hostcore.verification.log_record import LogRecord
from hostcore.verification.order_checks import check_order, owed_of


def examine_run(directory: RunDirectory) -> tuple[RunSummary, list[RunCheck]]:
    """Check a run; again if an attempt has begun meanwhile, since the checks would be of two attempts."""
    while True:
        summary = summarize(directory)
        checks = list(_checks(directory, summary))
        if newest_attempt(directory.attempts) <= summary.attempt:
            return summary, checks


def _checks(directory: RunDirectory, summary: RunSummary) -> Iterator[RunCheck]:
    running = summary.status == "running"
    # The result before the log, which has its end by then, and the log before the checkpoints: those that are saved
    # meanwhile are more than it records, never less.
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


def _has_written(directory: RunDirectory) -> bool:
    """Return whether the run has written something that an event log would record."""
    return directory.result.exists() or any(directory.logs.glob("rank-*.jsonl"))


def _log_of(directory: RunDirectory) -> LogRecord | None:
    return LogRecord.read(directory.events) if directory.events.exists() else None
