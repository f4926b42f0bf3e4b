"""Checks of a run's checkpoints: every committed byte, and agreement with the log."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints import tree
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import Found, load_record, steps_in, verify
from hostcore.checkpoints.names import claims, record_name
from hostcore.verification.checks import MOST_NAMED, RunCheck, judged
from hostcore.verification.log_record import LogRecord, Saved
from hostcore_builtin_plugins.progress import format_bytes

#: The code of the error about a folder without a record.
_UNCOMMITTED: Final = "checkpoint.uncommitted"
#: What is raised for a host state that is none.
MALFORMED: Final = (OSError, LookupError, TypeError, ValueError, AttributeError)


@attrs.frozen(kw_only=True)
class Examined:
    """Result of examining a folder of checkpoints."""

    checks: Sequence[RunCheck]
    #: Those that verify, oldest first.
    whole: Sequence[Found]
    #: The steps that have a record: whole, damaged, or put aside by a commit that was broken off.
    steps: Collection[int]


def examine_checkpoints(folder: Path, *, root: Path, running: bool) -> Examined:
    """Compare every checkpoint with its commit record, and name what was never committed.

    :param folder: A run's ``checkpoints`` folder; may be missing.
    :param root: The run directory, which paths are shown below.
    :param running: Whether checkpoints may come and go meanwhile.
    """
    checks: list[RunCheck] = []
    whole: list[Found] = []
    for step in steps_in(folder):
        record = folder / record_name(step)
        path = record if record.exists() else record.with_suffix("")
        try:
            found = load_record(path)
            verify(folder, found.record)
        except CheckpointError as error:
            if running and not record.exists():
                continue  # pruned meanwhile, or being written
            place = below(root, Path(error.file) if error.file else path)
            if error.code == _UNCOMMITTED:
                checks.append(
                    _leftover(below(root, path), "it has no commit record: it was never finished, and is no checkpoint")
                )
            else:
                checks.append(RunCheck(id="checkpoint.content", status="failed", message=error.message, path=place))
            continue
        whole.append(found)
        told = f"{len(found.record.files)} files, {format_bytes(found.record.size)}, as they were committed"
        checks.append(RunCheck(id="checkpoint.content", status="ok", message=told, path=below(root, found.folder)))
    broken_off = claims(folder) if folder.is_dir() else []
    if not running:
        hidden = [path for claim in broken_off for path in claim.hidden if path.exists()]
        checks += [_leftover(below(root, path), "a commit or a removal that was broken off") for path in hidden]
    recorded = {step for step in steps_in(folder) if (folder / record_name(step)).exists()}
    return Examined(checks=checks, whole=whole, steps=recorded | {claim.step for claim in broken_off})


def _leftover(place: str, what: str) -> RunCheck:
    return RunCheck(id="checkpoint.leftover", status="warning", message=what, path=place)


def below(root: Path, path: Path) -> str:
    """A path as it lies in the run directory; as it is, if it lies elsewhere."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def host_state(folder: Path) -> Mapping[str, Any]:
    """The host's part of a checkpoint. Tensors that callbacks may have put there stay unread: torch is not needed."""
    host = tree.decode(orjson.loads((folder / "host.json").read_bytes()), lambda leaf: leaf)
    if not isinstance(host, Mapping):
        raise TypeError("host.json holds no host state")
    return host


def check_story(
    examined: Examined, log: LogRecord, *, keep: int, newest_attempt: int, running: bool
) -> Iterator[RunCheck]:
    """Compare the log's checkpoints with those that are there, and with the beginnings of attempts.

    :param keep: How many the newest attempt kept.
    """
    saved = {event.step: event for event in log.saved}
    problems = []
    for record in (found.record for found in examined.whole):
        event, end = saved.get(record.step), log.end_of(record.attempt)
        if end is None or not end.by_worker or end.status == "failed":
            continue  # its worker may have committed it, and ended before it could record that
        if event is None:
            problems.append(f"the checkpoint of step {record.step:,} is there, and no event says that it was saved")
        elif (event.bytes, event.final) != (record.size, record.final):
            was = f"{event.bytes:,} bytes{', final' if event.final else ''}"
            problems.append(f"the checkpoint of step {record.step:,} is not what event {event.seq} says: {was}")
    kept = set() if running else _must_be_there(log, examined.steps, keep=keep, newest_attempt=newest_attempt)
    problems += [
        f"the checkpoint of step {step:,} was saved (event {saved[step].seq}) and is not there any more"
        for step in sorted(kept - set(examined.steps))
    ]
    pruned = len(set(saved) - set(examined.steps))
    unmerged = len({found.record.step for found in examined.whole} - set(saved))
    told = f"{len(saved):,} saved" if saved else "none were saved"
    told += f", {pruned:,} of them removed since, as the job says" if pruned else ""
    told += f"; {unmerged:,} more are there, whose events are not merged yet" if unmerged else ""
    yield judged("log.checkpoints", problems, otherwise=told)
    yield _check_metrics(examined.whole, saved)
    yield _check_resumes(log)


def _check_metrics(checkpoints: Sequence[Found], saved: Mapping[int, Saved]) -> RunCheck:
    """Check that the metrics of a checkpoint are those of the log."""
    problems, compared = [], 0
    for found in checkpoints:
        step, known = found.record.step, saved[found.record.step].metrics if found.record.step in saved else {}
        try:
            held = host_state(found.folder)["progress"]["metrics"].items() if known else ()
            pairs = [(name, value if math.isfinite(value) else None) for name, value in held if name in known]
        except MALFORMED:
            continue  # pruned since it was verified, or reported by the check of its place in the data
        compared += len(pairs)
        problems += [
            f"the checkpoint of step {step:,} has {name} {value}, and the log {known[name]}"
            for name, value in pairs
            if value != known[name]
        ]
    told = f"{compared:,} values, as the log says" if compared else "no checkpoint has metrics that the log knows of"
    return judged("checkpoint.metrics", problems, otherwise=told)


def _must_be_there(log: LogRecord, there: Collection[int], *, keep: int, newest_attempt: int) -> set[int]:
    """The steps whose checkpoints must still be there: the newest, the final ones, and those that the job keeps.

    :param there: The steps that have one. A worker that outlived its supervisor saved some that the log does not have
        yet, and removed older ones for them.
    """
    steps = sorted({event.step for event in log.saved} | set(there))
    of_newest = {event.step for event in log.saved if event.attempt == newest_attempt}
    final = {step for step, event in {one.step: one for one in log.saved}.items() if event.final}  # as saved last
    return set(steps[-1:]) | (set(steps[-keep:] if keep else []) & of_newest) | final


def _check_resumes(log: LogRecord) -> RunCheck:
    """Check that every attempt resumed a checkpoint that was saved before, or began at step 0."""
    problems = []
    for attempt, step in log.started.items():
        resumed = next((event for event in log.resumed if event.attempt == attempt), None)
        if resumed is None:
            if step:
                problems.append(
                    f"attempt {attempt} began at step {step:,}, and says of no checkpoint that it resumed it"
                )
        elif resumed.step != step:
            problems.append(f"attempt {attempt} resumed step {resumed.step:,}, and began at step {step:,}")
        elif not Path(resumed.path).is_absolute() and not _could_resume(log, attempt, step):
            problems.append(f"attempt {attempt} resumed step {step:,}, of which no checkpoint was saved before")
    went_on = {event.attempt for event in log.resumed}
    begun = [
        f"attempt {attempt} {'went on' if attempt in went_on else 'began'} at step {step:,}"
        for attempt, step in log.started.items()
    ]
    told = ", ".join(begun[-MOST_NAMED:]) or "no attempt has begun to train"
    return judged("log.resumes", problems, otherwise=told)


def _could_resume(log: LogRecord, attempt: int, step: int) -> bool:
    """Return whether a step's checkpoint was saved by an earlier attempt, or by one that could no longer record it."""
    if any(event.step == step and event.attempt < attempt for event in log.saved):
        return True
    earlier = range(1, attempt)
    return any((end := log.end_of(number)) is None or not end.by_worker for number in earlier)
