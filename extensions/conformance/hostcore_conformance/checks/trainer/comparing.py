"""A run that was interrupted, beside the same run that was not."""

from collections.abc import Collection

import attrs

from hostcore_conformance.checks.trainer.attempts import Trace, repeated, uninterrupted
from hostcore_conformance.checks.trainer.leaves import Difference, first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject


@attrs.frozen(kw_only=True)
class Departure:
    """The first value that an interrupted run has recorded otherwise than the other."""

    metric: str
    step: int
    expected: float | None
    #: None also if it was not recorded.
    got: float | None


def first_departure(subject: Subject, trace: Trace, *, after: int = 0) -> Departure | None:
    """The first metric that differs from that of the uninterrupted run.

    A metric that differs between two uninterrupted runs, such as a time, is not compared.

    :param after: The step behind which the runs are compared.
    :raises ConformanceError: That is so of a loss, on a CPU: then there is nothing to compare.
    :raises NotApplicable: It is, on a device whose kernels may do so.
    """
    expected, got = uninterrupted(subject).values, trace.values
    for (metric, step), value in sorted(expected.items(), key=_losses_first):
        if step <= after or (got.get((metric, step)) == value and (metric, step) in got):
            continue
        if metric in _unsteady(subject):
            if "loss" in metric:
                raise _irreproducible(subject, metric)
            continue
        return Departure(metric=metric, step=step, expected=value, got=got.get((metric, step)))
    return None


def _losses_first(item: tuple[tuple[str, int], object]) -> tuple[int, bool, bool]:
    (metric, step), _ = item
    return step, metric.startswith("val/"), "loss" not in metric


def _unsteady(subject: Subject) -> Collection[str]:
    one, other = uninterrupted(subject).values, repeated(subject).values
    return {metric for metric, step in one if other.get((metric, step)) != one[metric, step]}


def _irreproducible(subject: Subject, metric: str) -> Exception:
    if not uninterrupted(subject).on_cpu:
        return NotApplicable(
            "its losses differ from run to run on this device, even without an interruption: give the example job"
            ' "device": "cpu", or "deterministic": true',
            wants_example=True,
        )
    one, other = uninterrupted(subject).values, repeated(subject).values
    step = next(step for name, step in one if name == metric and other.get((name, step)) != one[name, step])
    return ConformanceError(
        expected="two uninterrupted runs of the job to have the same losses",
        got=f"{metric} of step {step}: {one[metric, step]!r}, and in another process {other.get((metric, step))!r}",
        fix="Draw all random numbers from the global generators of Python, NumPy and torch, or seed your own with"
        " ctx.job.seed; without that no resume can be exact.",
    )


def first_state_departure(subject: Subject, trace: Trace, step: int) -> Difference | None:
    """Where the state of a checkpoint differs from that of the uninterrupted run; None if only one of them has it."""
    other = uninterrupted(subject)
    if step not in other.steps or step not in trace.steps:
        return None
    found = first_difference(other.state(step), trace.state(step))
    if found is None:
        return None
    unsteady = {one.path for one in _unsteady_state(subject, step)}
    return first_difference(other.state(step), trace.state(step), but=unsteady)


def _unsteady_state(subject: Subject, step: int) -> list[Difference]:
    from hostcore_conformance.checks.trainer.leaves import differences

    return list(differences(uninterrupted(subject).state(step), repeated(subject).state(step)))
