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
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints.find import committed
from hostcore.job.document import Document
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.retrained import Comparison, is_compared, known_causes
from hostcore_debug.callback import FOLDER_VARIABLE
from hostcore_debug.steps import StepMetrics, recorded_metrics
from hostcore_hookspecs import HostcoreError

_CALLBACK: Final = "hostcore-debug/step-debugger"
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


@attrs.frozen(kw_only=True)
class Wish:
    """A replay that is asked for."""

    #: The first and the last step that are looked at.
    step: int
    until: int
    #: Values of the job's keys, as ``--set`` takes them: then it is no replay any more.
    changes: Sequence[str] = ()
    #: Numbers of rows that others of the same step take the place of: as well.
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
    metrics: Mapping[int, StepMetrics]
    #: What was measured at each step that was looked at: see :class:`~hostcore_debug.callback.StepDebugger`.
    measured: Sequence[Mapping[str, Any]]
    #: The error that ended it.
    error: Mapping[str, Any] | None


def replay(directory: RunDirectory, wish: Wish, scratch: Path) -> Replayed:
    """Train a stretch of a run again.

    :param directory: Of the run; read only.
    :param scratch: An empty folder, for the replay's run directory.
    :raises HostcoreError: It could not be started.
    """
    begun_from = _checkpoint_before(directory, wish.step)
    record = RunRecord.read(directory.record)
    copy = RunDirectory(scratch / f"replay-{directory.run_id}")  # what an ended run owes is of its id
    copy.make()
    settings = {
        "use": _CALLBACK,
        "first": wish.step,
        "last": wish.until,
        "folder": str(scratch),
        "pdb": wish.pdb,
        "debugpy": wish.debugpy,
        "without": list(wish.without),
        "measures": wish.measures,
    }
    callbacks = [one for one in record.job.get("callbacks", ()) if one["use"] != _CALLBACK]  # of a replay of a replay
    changed = {
        "callbacks": [*callbacks, settings],
        "checkpoint_every": wish.until if wish.keeps else 0,  # several ranks stop some steps behind a request
        "run_id": copy.run_id,
    }
    job = {**record.job, **_LEFT_OUT, **changed}
    document = Document(job)
    for change in wish.changes:
        document = document.with_override(change)
    attrs.evolve(record, job=document.job, refs=_with_own(record.refs)).write(copy.record)
    if directory.lock.is_file():
        shutil.copy2(directory.lock, copy.lock)
    if begun_from:
        _link_checkpoint(directory.checkpoints, copy.checkpoints, begun_from)
    end = _train(copy, wish)
    metrics = {step: found for step, (_, found) in recorded_metrics(copy).items() if step <= wish.until}
    if wish.is_replay:
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
    """Return the plugins of a run's plan, and this package's callback."""
    from hostcore.plugins.installed import discover

    own = [attrs.asdict(one) for one in discover().refs if f"{one.dist}/{one.name}" == _CALLBACK]
    return [*(one for one in refs if one not in own), *own]


def _checkpoint_before(directory: RunDirectory, step: int) -> int:
    """Return the finished steps of the newest checkpoint before a step; 0 if there is none."""
    return max((one.step for one in committed(directory.checkpoints) if one.step < step), default=0)


def _link_checkpoint(source: Path, target: Path, step: int) -> None:
    record = next(one for one in committed(source) if one.step == step)
    shutil.copytree(source / record.folder_name, target / record.folder_name, copy_function=_link_or_copy)
    shutil.copy2(source / f"{record.folder_name}.json", target / f"{record.folder_name}.json")


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _train(copy: RunDirectory, wish: Wish) -> Mapping[str, Any]:
    """Resume the copy, and return the result that the command prints."""
    command = [sys.executable, "-m", "hostcore", "resume", str(copy.path), "--runs-dir", str(copy.path.parent)]
    environment = {**os.environ, FOLDER_VARIABLE: str(copy.path.parent)}
    if wish.pdb:
        subprocess.run([*command, "--in-process", "--quiet"], env=environment, check=False)
        return json.loads(copy.result.read_text()) if copy.result.is_file() else {}
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, env=environment, check=False)
    try:
        return dict(orjson.loads(done.stdout))
    except (orjson.JSONDecodeError, ValueError):
        return {}


def _failure(end: Mapping[str, Any], copy: RunDirectory) -> HostcoreError:
    errors = end.get("errors") or [end.get("error") or {}]
    found = errors[0] if isinstance(errors[0], Mapping) else {}
    message = found.get("message") or "the replay ended before its first step"
    return HostcoreError(
        f"the replay could not be made: {message}", hint=found.get("hint"), file=found.get("file") or str(copy.path)
    )


def _compared(
    directory: RunDirectory, copy: RunDirectory, record: RunRecord, metrics: Mapping[int, StepMetrics]
) -> tuple[int, Different | None, list[str]]:
    recorded, compared = recorded_metrics(directory), 0
    for step, now in metrics.items():
        if step not in recorded:
            continue
        compared += 1
        attempt, before = recorded[step]
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
    return known_causes(comparison, both, {}, file=directory.record)
