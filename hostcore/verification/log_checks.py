"""Checks of the event log: that it has everything, once and in order."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hostcore.checkpoints.find import Found
from hostcore.events.reader import GrowingLog, name_of
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, read_document
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.runs.retrained import known_causes
from hostcore.verification.checks import MOST_NAMED, RunCheck, Status, judged
from hostcore.verification.log_record import LogRecord
from hostcore_hookspecs.events import ENDS

_RANK_LOGS: Final = "rank-*.attempt-*.jsonl"
_RETRAINED: Final = "log.retrained"
#: What cannot be known of a run whose attempts trained no step twice.
UNSEEN: Final = "whether a resume is exact was not seen"


def check_log(
    directory: RunDirectory,
    record: LogRecord,
    result: RunResult | None,
    *,
    checkpoints: Sequence[Found] = (),
    newest_attempt: int,
    running: bool,
) -> Iterator[RunCheck]:
    """Check the event log for consistency, and against the ranks' logs and the result.

    :param record: Contents of the log.
    :param result: Read before the log, which has an end before there is a result of it.
    :param checkpoints: Those that verify.
    :param newest_attempt: The highest attempt claimed when the log was read.
    :param running: Whether the newest attempt runs now: then it needs no end yet.
    """
    path = str(directory.events.relative_to(directory.path))
    yield judged("log.sequence", record.broken, otherwise=f"{record.count:,} events, numbered without a gap", path=path)
    if record.torn_bytes and not running:
        torn = f"its last line is not whole ({record.torn_bytes:,} bytes): its writer died, and no reporter got it"
        yield RunCheck(id="log.torn", status="warning", message=torn, path=path)
    yield _check_steps(record, path)
    yield _check_ends(record, newest_attempt, running=running)
    yield from _check_result(directory, record, result, newest_attempt, running=running)
    if not running:
        yield _check_beginnings(directory, record, checkpoints, path)
        yield from _check_readers(directory, record)
    yield from _check_sources(directory, record, newest_attempt, running=running)


def _check_steps(record: LogRecord, path: str) -> RunCheck:
    count = sum(record.measured.values())
    return judged("log.steps", record.disorder, otherwise=f"{count:,} measurements, in the order of steps", path=path)


def _check_ends(record: LogRecord, newest: int, *, running: bool) -> RunCheck:
    """Check that every attempt ends once. An attempt whose supervisor was killed has no end."""
    problems, told = list(record.after_end), []
    for attempt in range(1, newest + 1):
        ends = [end for end in record.ends if end.attempt == attempt]
        if len(ends) > 1:
            numbers = ", ".join(str(end.seq) for end in ends)
            problems.append(f"attempt {attempt} ended {len(ends)} times (events {numbers})")
        state = "was lost with its supervisor"
        if running and attempt == newest:
            state = "runs" if attempt in record.started else "is starting"
        told.append(f"attempt {attempt} {ends[0].status if ends else state}")
    problems += [
        f"attempt {end.attempt} has an end, but was never claimed" for end in record.ends if end.attempt > newest
    ]
    if len(told) > MOST_NAMED:
        told = [f"{len(told) - MOST_NAMED} attempts", *told[-MOST_NAMED:]]
    return judged("log.ends", problems, otherwise=", ".join(told) or "no attempt has begun")


def check_retrained(directory: RunDirectory, log: LogRecord, record: RunRecord) -> Iterator[RunCheck]:
    """Check that steps which were trained again after a resume gave the same metrics, bit for bit."""
    if len(log.started) < 2:
        return
    made_again = [one for one in log.retrained.comparisons if one.count]
    for one in made_again:
        steps = f"step {one.first_step:,}" + (f" to {one.last_step:,}" if one.last_step > one.first_step else "")
        message = f"attempt {one.attempt} trained {steps} again: {one.count:,} measurements, the same bit for bit"
        status: Status = "ok"
        if one.first is not None:
            causes = known_causes(one, record, log.retrained.devices, file=directory.record)
            status, why = ("warning", f": expected, for {', '.join(causes)}") if causes else ("failed", "")
            message = f"{one.differing:,} of {one.count:,} measurements that were made again differ: {one}{why}"
        yield RunCheck(id=_RETRAINED, status=status, message=message)
    if not made_again:
        yield RunCheck(id=_RETRAINED, status="skipped", message=f"{UNSEEN}: no step was measured by two attempts")


def _check_beginnings(directory: RunDirectory, record: LogRecord, checkpoints: Sequence[Found], path: str) -> RunCheck:
    """The log has the beginning of each attempt that has trained: it is on the disk before its workers may go."""
    proofs = {found.record.attempt: f"the checkpoint of step {found.record.step:,}" for found in checkpoints}
    for log in sorted(directory.logs.glob(_RANK_LOGS)):
        source = _source_of(log)
        if source and any(name_of(line) == "run_started" for line in GrowingLog(log).read()):
            proofs.setdefault(source[1], log.name)
    problems = [
        f"attempt {attempt} has trained, as {proof} shows, and its beginning is not in the log: events were lost"
        for attempt, proof in sorted(proofs.items())
        if attempt not in record.submitted
    ]
    told = f"the beginnings of all {len(proofs):,} attempts that have trained" if proofs else "no attempt has trained"
    return judged("log.begins", problems, otherwise=told, path=path)


def _check_readers(directory: RunDirectory, record: LogRecord) -> Iterator[RunCheck]:
    """No reporter has received an event that is not in the log."""
    for cursor in sorted(directory.cursors.glob("*.json")):
        try:
            received = int(read_document(cursor)["seq"])
        except (CorruptDocument, UnreadableDocument, FileNotFoundError, KeyError, TypeError, ValueError):
            continue  # it is written anew
        if received > record.last_seq:
            lost = (
                f"the reporter {cursor.stem} has received event {received:,}, and the log ends at {record.last_seq:,}"
            )
            yield RunCheck(
                id="log.received", status="failed", message=lost, path=str(cursor.relative_to(directory.path))
            )


def _check_result(
    directory: RunDirectory, record: LogRecord, result: RunResult | None, newest: int, *, running: bool
) -> Iterator[RunCheck]:
    """Check that ``result.json`` agrees with the log about its attempt."""
    if result is None:
        if not running and record.end_of(newest):
            told = f"the log says how attempt {newest} ended, and there is no result.json"
            yield RunCheck(id="log.result", status="failed", message=told, path=directory.result.name)
        return
    end = record.end_of(result.attempt)
    problems = []
    if end is None:
        problems.append(f"attempt {result.attempt} {result.status} by result.json, and has no end in the log")
    else:
        if end.status != result.status:
            problems.append(f"attempt {result.attempt} {result.status} by result.json, and {end.status} by the log")
        if end.step is not None and end.step != result.step:
            problems.append(f"it ended at step {result.step:,} by result.json, and at step {end.step:,} by the log")
    told = f"attempt {result.attempt} {result.status} at step {result.step:,}, as the log says"
    yield judged("log.result", problems, otherwise=told, path=directory.result.name)


def _check_sources(directory: RunDirectory, record: LogRecord, newest: int, *, running: bool) -> Iterator[RunCheck]:
    """Every event that a rank wrote is in the log, once."""
    for path in sorted(directory.logs.glob(_RANK_LOGS)):
        source = _source_of(path)
        if source is None:
            continue
        (written, ends), merged = _offsets(path), record.sources.get(source, array("q"))
        missing = sorted(set(written) - set(merged))
        twice = len(merged) - len(set(merged))
        strange = len(set(merged) - set(written))
        if record.end_of(source[1]):  # each rank records its end, and the log has one of these ends
            missing = [offset for offset in missing if offset not in ends]
        where = str(path.relative_to(directory.path))
        runs = running and source[1] == newest
        if missing and not (twice or strange) and (runs or record.end_of(source[1]) is None):
            waits = "for the supervisor, which runs" if runs else "for the next attempt, which reads them first"
            yield RunCheck(
                id="log.merged",
                status="ok" if runs else "warning",
                message=f"{len(missing):,} events are not merged into the event log yet: they wait {waits}",
                path=where,
            )
            continue
        problems = []
        if missing:
            problems.append(f"{len(missing):,} events are not in the event log, the first at byte {missing[0]:,}")
        if twice:
            problems.append(f"{twice:,} events are in the event log more than once")
        if strange:
            problems.append(f"{strange:,} events of the event log are not here")
        yield judged(
            "log.merged", problems, otherwise=f"{len(merged):,} events, each once in the event log", path=where
        )


def _source_of(path: Path) -> tuple[int, int] | None:
    """Rank and attempt of a rank's log, by its name."""
    rank, _, attempt = path.name.removesuffix(".jsonl").removeprefix("rank-").partition(".attempt-")
    return (int(rank), int(attempt)) if rank.isdecimal() and attempt.isdecimal() else None


def _offsets(path: Path) -> "tuple[array[int], set[int]]":
    """Return the offsets of the whole lines of a rank's log; and those of them that are ends."""
    offsets, ends, log = array("q"), set(), GrowingLog(path)
    for line in log.read():
        offset = log.offset - len(line)
        offsets.append(offset)
        if name_of(line) in ENDS:
            ends.add(offset)
    return offsets, ends
