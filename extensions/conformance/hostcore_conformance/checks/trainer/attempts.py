"""Attempts of the example job in processes of their own, and what they leave behind."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.checkpoints.find import committed
from hostcore.events.codec import decode_event
from hostcore.runs.directory import RunDirectory
from hostcore_conformance.checks.trainer.interruption import CALLBACK, VARIABLE
from hostcore_conformance.checks.trainer.naming import packages_of
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.excerpt import shortened
from hostcore_conformance.process.fork_server import Ended, fork_server
from hostcore_conformance.rehearsal import require_job, run_small
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.events import Event, Metrics, RunStarted, Validation

RUN_ID: Final = "rehearsal"
#: Two epochs and a step.
STEPS: Final = 7
STEPS_PER_EPOCH: Final = 3
VALIDATE_EVERY: Final = 4
#: Far more than any example needs, and still an end.
_PATIENCE_SECONDS: Final = 120.0


@attrs.frozen(kw_only=True)
class Trace:
    """What a run has recorded."""

    directory: RunDirectory

    @property
    def values(self) -> Mapping[tuple[str, int], float | None]:
        """Metrics by name and step, in the order in which they were recorded first; of a step done twice, the last."""
        found: dict[tuple[str, int], float | None] = {}
        for event in self._events():
            payload = event.payload
            if isinstance(payload, Metrics | Validation) and event.step is not None:
                found |= {(name, event.step): value for name, value in payload.metrics.items()}
        return found

    def _events(self) -> Iterator[Event]:
        for line in self.directory.events.read_bytes().splitlines():
            yield decode_event(line)

    @property
    def on_cpu(self) -> bool:
        """Whether it was trained on the CPU."""
        return all(one.payload.device == "cpu" for one in self._events() if isinstance(one.payload, RunStarted))

    @property
    def steps(self) -> Sequence[int]:
        """Of which there are checkpoints."""
        return [record.step for record in committed(self.checkpoints)]

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.directory.path / "checkpoints"

    def state(self, step: int) -> Any:
        """What ``state_dict`` had returned for the checkpoint of a step."""
        from hostcore.checkpoints.state import read_state

        (record,) = (one for one in committed(self.checkpoints) if one.step == step)
        return read_state(self.checkpoints / record.folder_name, "state")


def run_job(jobs: Sequence[Mapping[str, Any]], runs: str, job_dir: str, wishes: Sequence[str]) -> list[dict[str, Any]]:
    """In a child: run attempts, one after the other.

    :param jobs: One for each.
    :param wishes: For the callback ``Interruption``, one for each.
    :return: Their results, as ``result.json`` has them.
    """
    results = []
    for job, wish in zip(jobs, wishes, strict=True):
        os.environ[VARIABLE] = wish
        results.append(attrs.asdict(run_small(job, runs=Path(runs), job_dir=Path(job_dir)).result))
    return results


def exact_job(subject: Subject, *kept: str, **changes: Any) -> dict[str, Any]:
    """The example job as these checks run it: three short epochs, everything recorded, a checkpoint at every step.

    :param kept: ``test``, ``samples``: what is left out unless it is named.
    :param changes: Keys of the job to set; None removes one.
    :raises NotApplicable: There is no example.
    """
    require_job(subject)
    job = shortened(subject.job, folder=subject.example.folder, steps=STEPS_PER_EPOCH)
    job |= {
        "run_id": RUN_ID,
        "max_steps": STEPS,
        "metric_every": 1,
        "checkpoint_every": 1,
        "keep_checkpoints": 100,
        "validate_every": VALIDATE_EVERY if "validation" in job and subject.has("validate_step") else 0,
        "reporters": [],
        "terminal": False,
        "uploaders": [],
        "callbacks": [CALLBACK],
        **{key: None for key in ("test", "samples") if key not in kept},
        **changes,
    }
    if not job["validate_every"]:
        job.pop("validation", None)
    return {key: value for key, value in job.items() if value is not None}


@attrs.frozen(kw_only=True)
class Attempted:
    """Attempts that a child has made."""

    ended: Ended
    trace: Trace
    #: The top-level packages or modules of the trainer's code.
    packages: Set[str]

    @property
    def result(self) -> Mapping[str, Any] | None:
        """How the last of them has ended; None if the child was killed, or refused the job."""
        return self.ended.value[-1] if self.ended.value else None


def attempt(
    subject: Subject,
    job: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    runs: Path,
    wishes: Sequence[str] = ("",),
    fresh: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Attempted:
    """Make attempts of a run in one child.

    :param job: Of all of them, or one for each.
    :param runs: The folder of the run directory. What an earlier attempt left there is gone on with.
    :param wishes: One for each attempt; see :data:`~hostcore_conformance.checks.trainer.interruption.VARIABLE`.
    :param fresh: Whether the child is a new interpreter.
    :param environment: Variables to set in it.
    :raises ConformanceError: It hangs.
    """
    jobs = [job] * len(wishes) if isinstance(job, Mapping) else list(job)
    arguments = {"jobs": jobs, "runs": str(runs), "job_dir": str(subject.example.folder), "wishes": list(wishes)}
    ended = fork_server().call(
        f"{__name__}:{run_job.__name__}",
        arguments,
        folder=subject.folder(),
        timeout_seconds=_PATIENCE_SECONDS,
        environment=environment,
        fresh=fresh,
    )
    if ended.timed_out:
        raise ConformanceError(
            expected=f"a run of {jobs[-1]['max_steps']} steps to end",
            got=f"no end after {_PATIENCE_SECONDS:g} s; it has printed: {ended.output.strip() or 'nothing'}",
            fix="Look for what waits: a lock that a dead process has left, a queue, a thread that is joined.",
        )
    return Attempted(
        ended=ended,
        trace=Trace(directory=RunDirectory(runs / jobs[-1]["run_id"])),
        packages=packages_of(subject.owner),
    )


def require_success(attempted: Attempted, *, expected: str, fix: str) -> None:
    """See that a run has come to its end.

    :param expected: ``the run to go on after …``.
    :raises ConformanceError: It has not.
    """
    result = attempted.result
    if result is not None and result["status"] == "succeeded":
        return
    raise ConformanceError(expected=expected, got=_in_words(attempted), fix=fix)


def _in_words(attempted: Attempted) -> str:
    """How a run has ended that should have ended otherwise."""
    result, ended = attempted.result, attempted.ended
    if result is None:
        lines = [line for line in ended.output.splitlines() if line.strip()]
        return f"a process that ended with {ended.code}: {' | '.join(lines[-3:]) or 'it printed nothing'}"
    error = result["error"]
    if error is None:
        return f"a run that has {result['status']} at step {result['step']}"
    place = _place(error.get("traceback") or "", attempted.packages)
    return f"{error['type']}: {error['message']}{place}, at step {result['step']}"


def _place(traceback: str, packages: Set[str]) -> str:
    """Where the innermost call of a traceback is, in the plugin's own code if any is: `` at trainer.py:12``."""
    frames = [line.strip().split(",") for line in traceback.splitlines() if line.strip().startswith('File "')]
    if not frames:
        return ""
    own = [
        frame
        for frame in frames
        if not packages.isdisjoint(Path(frame[0].removeprefix('File "').rstrip('"')).with_suffix("").parts)
    ]
    file, line = (own or frames)[-1][:2]
    return f" at {Path(file.removeprefix('File ').strip(chr(34))).name}:{line.strip().removeprefix('line ')}"


def copied(subject: Subject, trace: Trace) -> Path:
    """A copy of a run directory; the folder that it lies in."""
    runs = subject.folder()
    shutil.copytree(trace.directory.path, runs / trace.directory.run_id)
    return runs


def uninterrupted(subject: Subject) -> Trace:
    """The run that was not interrupted; made once.

    :raises ConformanceError: It fails.
    """
    return subject.shared("trainer.uninterrupted", lambda: _uninterrupted(subject))


def _uninterrupted(subject: Subject) -> Trace:
    attempted = attempt(subject, exact_job(subject), runs=subject.folder())
    require_success(
        attempted,
        expected=f"a run of {STEPS} steps to succeed",
        fix="See the error; the run has a checkpoint each step.",
    )
    return attempted.trace


def repeated(subject: Subject) -> Trace:
    """The same run once more: what already differs in it cannot be asked of a resumed one."""
    return subject.shared("trainer.repeated", lambda: _uninterrupted(subject))
