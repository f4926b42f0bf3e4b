"""A stretch of a run, trained again beside it: from a checkpoint, in a folder of its own.

The replay is a resume by the host as any other, of a copy of the run's record with one of its checkpoints. So ranks,
data, random generators and the environment are those of a resume, and the run itself is only read.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints.find import committed
from hostcore.events.reader import LONGEST_RECORD, GrowingLog, name_of
from hostcore.job.document import Document
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.recorded import recorded_steps
from hostcore.runs.retrained import Comparison, is_compared, known_causes
from hostcore_debug.callback import FOLDER_VARIABLE, LEFT
from hostcore_hookspecs import HostcoreError

_CALLBACK: Final = "hostcore-debug/step-debugger"
#: Folders of a run directory that a replay makes anew, or has no need of.
_OF_THE_HOST: Final = frozenset(
    ["attempts", "checkpoints", "config", "control", "cursors", "logs", "plots", "samples", "spool"]
)
#: Keys of the job that a replay replaces: it reports to nobody and uploads nothing.
_LEFT_OUT: Final[Mapping[str, Any]] = {
    "metric_every": 1,
    "sample_every": 0,
    "prove_resume": 0,
    "max_restarts": 0,
    "max_runtime_seconds": 0.0,
    "require_checkpoints": False,
    "samples": [],
    "test": None,
    "terminal": False,
    "reporters": [],
    "uploaders": [],
    "policies": [],
    "launcher": "hostcore-builtin-plugins/local",
}


class DebuggerLeft(HostcoreError):
    """The user has left the debugger, and with it the replay."""


@attrs.frozen(kw_only=True)
class ReplayRequest:
    """The steps to train again, and how."""

    #: The first and the last step that are looked at.
    step: int
    until: int
    #: Values of the job's keys, as ``--set`` takes them: then it is no replay any more.
    changes: Sequence[str] = ()
    #: Numbers of rows in pairs: the second takes the place of the first. Then it is no replay either.
    without: Sequence[int] = ()
    #: Stop in the debugger before the step: in this process, at this terminal.
    pdb: bool = False
    #: Wait there for an editor at this port of the loopback interface; 0: no.
    debugpy: int = 0
    #: Measure gradients and updates.
    measures: bool = True
    #: Write a checkpoint behind the last step.
    keeps: bool = False

    @property
    def is_replay(self) -> bool:
        """Return whether nothing is changed, so that the losses must be the recorded ones."""
        return not (self.changes or self.without)


@attrs.frozen(kw_only=True)
class Different:
    """The first metric of a replay that is not the recorded one."""

    step: int
    metric: str
    recorded: float | None
    replayed: float | None


@attrs.frozen(kw_only=True)
class Replayed:
    """The end of a replay."""

    #: Its run directory, in the scratch folder.
    directory: RunDirectory
    #: Finished steps of the checkpoint that it began from; 0: from the beginning.
    begun_from: int
    #: Steps that it finished.
    steps: int
    #: Steps whose metrics could be compared.
    compared: int
    #: None: none of them differs.
    different: Different | None
    #: Known causes of the difference.
    causes: Sequence[str]
    #: By step, from the first replayed one on.
    metrics: Mapping[int, Mapping[str, float | None]]
    #: What was measured at each step that was looked at: see :class:`~hostcore_debug.callback.StepDebugger`.
    measured: Sequence[Mapping[str, Any]]
    #: The error that ended it.
    error: Mapping[str, Any] | None


def replay(directory: RunDirectory, request: ReplayRequest, scratch: Path) -> Replayed:
    """Train a stretch of a run again.

    :param directory: Of the run; read only.
    :param scratch: An empty folder, for the replay's run directory.
    :raises HostcoreError: It could not be started.
    :raises DebuggerLeft: The user has left the debugger.
    """
    begun_from = _checkpoint_before(directory, request.step)
    record = RunRecord.read(directory.record)
    if request.pdb and record.job.get("environment"):
        message = "--pdb runs the step in this process, and the job has an environment of its own"
        raise HostcoreError(message, hint="--debugpy PORT waits for an editor; add debugpy to the environment")
    copy = RunDirectory(scratch / f"replay-{directory.run_id}")  # what an ended run owes is of its id
    copy.make()
    settings = {
        "use": _CALLBACK,
        "first": request.step,
        "last": request.until,
        "pdb": request.pdb,
        "debugpy": request.debugpy,
        "without": list(request.without),
        "measures": request.measures,
    }
    callbacks = [one for one in record.job.get("callbacks", ()) if not _is_own(one)]  # of a replay of a replay
    changed = {
        "callbacks": [*callbacks, settings],
        "checkpoint_every": request.until if request.keeps else 0,  # several ranks stop some steps behind a request
        "run_id": copy.run_id,
    }
    job = {**record.job, **_LEFT_OUT, **changed, **_ranks_of_engine(directory, record)}
    document = Document(job)
    for change in request.changes:
        document = document.with_override(change)
    attrs.evolve(record, job=document.job, refs=_with_own(record.refs)).write(copy.record)
    if directory.lock.is_file():
        shutil.copy2(directory.lock, copy.lock)
    _copy_notes(directory.path, copy.path)
    if begun_from:
        _link_checkpoint(directory.checkpoints, copy.checkpoints, begun_from)
    end = _train(copy, request)
    metrics = {step: one.metrics for step, one in recorded_steps(copy.events).items() if step <= request.until}
    if request.is_replay:
        compared, different, causes = _compared(directory, copy, record, metrics)
    else:
        compared, different, causes = 0, None, []
    measured = [orjson.loads(one.read_bytes()) for one in sorted(scratch.glob("step-*.json"))]
    if not metrics and not measured:
        raise _failure(end, copy)
    return Replayed(
        directory=copy,
        begun_from=begun_from,
        steps=len(metrics),
        compared=compared,
        different=different,
        causes=causes,
        metrics=metrics,
        measured=measured,
        error=end.get("error"),
    )


def _with_own(refs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the plugins of a run's plan, and this package's callback; none for a record without a plan."""
    from hostcore.plugins.installed import discover

    own = [attrs.asdict(one) for one in discover().refs if f"{one.dist}/{one.name}" == _CALLBACK]
    return [*(one for one in refs if one not in own), *own] if refs else []


def _ranks_of_engine(directory: RunDirectory, record: RunRecord) -> Mapping[str, Any]:
    """Return the key of the devices, where an engine such as torchrun has started other ranks than the job has."""
    devices = list(_devices(directory))
    is_of_job = len(record.spec().requested_devices) == record.world_size
    return {} if is_of_job or len(devices) != record.world_size else {"devices": devices}


def _is_own(callback: str | Mapping[str, Any]) -> bool:
    """Return whether a callback of a job is this package's."""
    return not isinstance(callback, str) and callback["use"] == _CALLBACK


def _checkpoint_before(directory: RunDirectory, step: int) -> int:
    """Return the finished steps of the newest checkpoint before a step; 0 if there is none."""
    return max((one.step for one in committed(directory.checkpoints) if one.step < step), default=0)


def _link_checkpoint(source: Path, target: Path, step: int) -> None:
    record = next(one for one in committed(source) if one.step == step)
    shutil.copytree(source / record.folder_name, target / record.folder_name, copy_function=_link_or_copy)
    shutil.copy2(source / f"{record.folder_name}.json", target / f"{record.folder_name}.json")


def _copy_notes(source: Path, target: Path) -> None:
    """Copy the folders in which components keep notes for the next attempt, such as the version of a table."""
    for folder in source.iterdir():
        if folder.is_dir() and folder.name not in _OF_THE_HOST:
            shutil.copytree(folder, target / folder.name, symlinks=True)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _train(copy: RunDirectory, request: ReplayRequest) -> Mapping[str, Any]:
    """Resume the copy, and return the result that the command prints."""
    command = [sys.executable, "-m", "hostcore", "resume", str(copy.path), "--runs-dir", str(copy.path.parent)]
    paths = [_package_in(copy.path.parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        FOLDER_VARIABLE: str(copy.path.parent),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    if request.pdb:
        ended = subprocess.run([*command, "--in-process", "--quiet"], env=environment, check=False)
        if ended.returncode == LEFT:
            raise DebuggerLeft("the debugger was left before the step was over")
        return json.loads(copy.result.read_text()) if copy.result.is_file() else {}
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, env=environment, check=False)
    try:
        return dict(orjson.loads(done.stdout))
    except (orjson.JSONDecodeError, ValueError):
        return {}


def _package_in(folder: Path) -> str:
    """Lay this package into a folder for the import path: the job's environment may lack it."""
    own, package = folder / "packages", Path(__file__).parent
    distribution = metadata.distribution("hostcore-debug")
    shutil.copytree(package, own / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    notes = own / f"{package.name}-{distribution.version}.dist-info"
    notes.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (notes / name).write_text(distribution.read_text(name) or "")
    return str(own)


def _failure(end: Mapping[str, Any], copy: RunDirectory) -> HostcoreError:
    errors = end.get("errors") or [end.get("error") or {}]
    found = errors[0] if isinstance(errors[0], Mapping) else {}
    message = found.get("message") or "the replay ended before its first step"
    return HostcoreError(
        f"the replay could not be made: {message}", hint=found.get("hint"), file=found.get("file") or str(copy.path)
    )


def _compared(
    directory: RunDirectory, copy: RunDirectory, record: RunRecord, metrics: Mapping[int, Mapping[str, float | None]]
) -> tuple[int, Different | None, list[str]]:
    recorded, compared = recorded_steps(directory.events), 0
    for step, now in metrics.items():
        if step not in recorded:
            continue
        compared += 1
        attempt, before = recorded[step].attempt, recorded[step].metrics
        for name in now:
            if name in before and is_compared(name) and repr(before[name]) != repr(now[name]):
                found = Different(step=step, metric=name, recorded=before[name], replayed=now[name])
                return compared, found, _causes(directory, copy, record, found, attempt)
    return compared, None, []


def _causes(
    directory: RunDirectory, copy: RunDirectory, record: RunRecord, found: Different, attempt: int
) -> list[str]:
    """Return what is known to differ between the attempt of a step and its replay."""
    own = RunRecord.read(copy.record)
    newest = max((one["attempt"] for one in record.conditions), default=attempt) + 1
    before: Mapping[str, Any] = next(
        (one for one in reversed(record.conditions) if one["attempt"] <= attempt), {"job": {}}
    )
    now = [{**one, "attempt": newest, "job": before.get("job", {})} for one in own.conditions[-1:]]
    used = [{**one, "attempt": newest} for one in own.used[-1:]]
    both = attrs.evolve(record, conditions=[*record.conditions, *now], used=[*record.used, *used])
    comparison = Comparison(attempt=newest, before=attempt, first_step=found.step, last_step=found.step)
    devices = {attempt: _devices(directory, attempt), newest: _devices(copy)}
    return known_causes(comparison, both, devices, file=directory.record)


def _devices(directory: RunDirectory, attempt: int | None = None) -> Sequence[str]:
    """Return the devices of an attempt by rank, of the newest if not given; empty if the log has none."""
    found: Sequence[str] = ()
    for line in GrowingLog(directory.events).records(longest=LONGEST_RECORD):
        if name_of(line) == "run_submitted":
            event = orjson.loads(line)
            if attempt in (None, event["attempt"]):
                found = event["devices"]
    return found
