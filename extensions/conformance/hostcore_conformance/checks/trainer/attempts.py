"""Attempts of the example job in processes of their own, beside a run of the same job that was not interrupted."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.runs.directory import RunDirectory
from hostcore.runs.result import RunResult
from hostcore_conformance.differences import ValueDifference, differences, first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.excerpt import shortened
from hostcore_conformance.process.fork_server import ChildEnd, fork_server
from hostcore_conformance.rehearsal import RunRecording, how_it_ended, run_small, small_job
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import RunError

#: Two epochs and a step.
STEPS: Final = 7
STEPS_PER_EPOCH: Final = 3
VALIDATE_EVERY: Final = 4
#: Stops and kills a run at places that its settings name; a fault that was injected is not injected again.
_CHAOS: Final = "hostcore-chaos/chaos"
#: Far more than any example needs, and still an end.
_PATIENCE_SECONDS: Final = 120.0


def run_job(jobs: Sequence[Mapping[str, Any]], runs: str, job_dir: str) -> list[dict[str, Any]]:
    """In a child: run attempts, one after the other.

    :param jobs: One for each.
    :return: Their results, as ``result.json`` has them.
    """
    return [attrs.asdict(run_small(job, runs=Path(runs), job_dir=Path(job_dir)).result) for job in jobs]


def exact_job(subject: Subject, *kept: str, faults: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """The example job as these checks run it: three short epochs, everything recorded, a checkpoint at every step.

    :param kept: ``test``, ``samples``: what is left out unless it is named.
    :param faults: What ends attempts of the run in the middle: ``sigterm@step=3``, ``kill@train_step=5``.
    :param changes: Keys of the job to set; None removes one.
    :raises NotApplicable: There is no example.
    """
    job = small_job(
        subject,
        max_steps=STEPS,
        checkpoint_every=1,
        validate_every=VALIDATE_EVERY if "validation" in subject.job and subject.has("validate_step") else 0,
        sanity_batches=0,  # faults come in a call of a certain number
        callbacks=[{"use": _CHAOS, "faults": list(faults)}] if faults else [],
        **{key: None for key in ("test", "samples") if key not in kept},
    )
    job = shortened(job, folder=subject.example.folder, steps=STEPS_PER_EPOCH) | changes
    if not job["validate_every"]:
        job.pop("validation", None)
    return {key: value for key, value in job.items() if value is not None}


@attrs.frozen(kw_only=True)
class Attempted:
    """Attempts that a child has made."""

    ended: ChildEnd
    trace: RunRecording

    @property
    def result(self) -> RunResult | None:
        """Result of the last attempt; None if the child was killed, or refused the job."""
        if not self.ended.value:
            return None
        found = self.ended.value[-1]
        return RunResult(**{**found, "error": RunError(**found["error"]) if found["error"] else None})

    @property
    def succeeded(self) -> bool:
        """True if the last attempt has come to its end."""
        return self.result is not None and self.result.status == "succeeded"


def attempt(
    subject: Subject,
    job: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    runs: Path,
    attempts: int = 1,
    fresh: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Attempted:
    """Make attempts of a run in one child.

    :param job: Of all of them, or one for each.
    :param runs: The folder of the run directory. What an earlier attempt left there is gone on with.
    :param attempts: How many, of one job.
    :param fresh: Whether the child has another seed of Python's hashes.
    :param environment: Variables to set in it.
    :raises ConformanceError: It hangs.
    """
    jobs = [job] * attempts if isinstance(job, Mapping) else list(job)
    arguments = {"jobs": jobs, "runs": str(runs), "job_dir": str(subject.example.folder)}
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
    return Attempted(ended=ended, trace=RunRecording(directory=RunDirectory(runs / jobs[-1]["run_id"])))


def require_success(attempted: Attempted, *, expected: str, fix: str) -> None:
    """See that a run has come to its end.

    :param expected: ``the run to go on after …``.
    :raises ConformanceError: It has not.
    """
    if not attempted.succeeded:
        raise ConformanceError(expected=expected, got=_in_words(attempted), fix=fix)


def _in_words(attempted: Attempted) -> str:
    """Describe an end that should have been another one."""
    if attempted.result is not None:
        return how_it_ended(attempted.result)
    lines = [line for line in attempted.ended.output.splitlines() if line.strip()]
    return f"a process that ended with {attempted.ended.code}: {' | '.join(lines[-3:]) or 'it printed nothing'}"


def copied(subject: Subject, trace: RunRecording) -> Path:
    """A copy of a run directory; the folder that it lies in."""
    runs = subject.folder()
    shutil.copytree(trace.directory.path, runs / trace.directory.run_id)
    return runs


def uninterrupted(subject: Subject) -> RunRecording:
    """The run that was not interrupted; made once.

    :raises ConformanceError: It fails.
    """
    return subject.shared("trainer.uninterrupted", lambda: _uninterrupted(subject))


def _uninterrupted(subject: Subject) -> RunRecording:
    attempted = attempt(subject, exact_job(subject), runs=subject.folder())
    require_success(
        attempted,
        expected=f"a run of {STEPS} steps to succeed",
        fix="See the error; the run has a checkpoint each step.",
    )
    return attempted.trace


def repeated(subject: Subject) -> RunRecording:
    """The same run once more: what already differs in it cannot be asked of a resumed one."""
    return subject.shared("trainer.repeated", lambda: _uninterrupted(subject))


@attrs.frozen(kw_only=True)
class Departure:
    """The first value that an interrupted run has recorded otherwise than the other."""

    metric: str
    step: int
    expected: float | None
    #: None also if it was not recorded.
    got: float | None


def first_departure(subject: Subject, trace: RunRecording, *, after: int = 0) -> Departure | None:
    """The first metric that differs from that of the uninterrupted run.

    A metric that differs between two uninterrupted runs, such as a time, is not compared.

    :param after: The step behind which the runs are compared.
    :raises ConformanceError: That is so of a loss, on a CPU: then there is nothing to compare.
    :raises NotApplicable: It is, on a device whose kernels may do so.
    """
    expected, got = uninterrupted(subject).metrics, trace.metrics
    for (step, metric), value in sorted(expected.items(), key=_losses_first):
        if step <= after or (got.get((step, metric)) == value and (step, metric) in got):
            continue
        if metric in _unsteady(subject):
            if "loss" in metric:
                raise _irreproducible(subject, metric)
            continue
        return Departure(metric=metric, step=step, expected=value, got=got.get((step, metric)))
    return None


def _losses_first(item: tuple[tuple[int, str], object]) -> tuple[int, bool, bool]:
    (step, metric), _ = item
    return step, metric.startswith("val/"), "loss" not in metric


def _unsteady(subject: Subject) -> Collection[str]:
    one, other = uninterrupted(subject).metrics, repeated(subject).metrics
    return {metric for step, metric in one if other.get((step, metric)) != one[step, metric]}


def _irreproducible(subject: Subject, metric: str) -> Exception:
    if not uninterrupted(subject).on_cpu:
        return NotApplicable(
            "its losses differ from run to run on this device, even without an interruption: give the example job"
            ' "device": "cpu", or "deterministic": true',
            wants_example=True,
        )
    one, other = uninterrupted(subject).metrics, repeated(subject).metrics
    step = next(step for step, name in one if name == metric and other.get((step, name)) != one[step, name])
    return ConformanceError(
        expected="two uninterrupted runs of the job to have the same losses",
        got=f"{metric} of step {step}: {one[step, metric]!r}, and in another process {other.get((step, metric))!r}",
        fix="Draw all random numbers from the global generators of Python, NumPy and torch, or seed your own with"
        " ctx.job.seed; without that no resume can be exact.",
    )


def first_state_departure(subject: Subject, trace: RunRecording, step: int) -> ValueDifference | None:
    """Return the first difference between a checkpoint's state and the uninterrupted run's; None if only one has it."""
    other = uninterrupted(subject)
    if step not in other.steps or step not in trace.steps:
        return None
    found = first_difference(other.state(step), trace.state(step))
    if found is None:
        return None
    unsteady = {one.path for one in differences(other.state(step), repeated(subject).state(step))}
    return first_difference(other.state(step), trace.state(step), but=unsteady)
