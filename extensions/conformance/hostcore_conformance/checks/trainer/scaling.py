"""Checks of a trainer's CAPABILITIES: it accumulates, and it computes in half precision."""

import math
from typing import Any, Final

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.learning import gradient_of_step
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.differences import first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError

#: How far the gradient of two batches may be from the mean of theirs, of what the two differ by.
_TOLERANCE: Final = 0.25
#: Two gradients that differ by less than this share of their length cannot be distinguished.
_ALIKE: Final = 1e-3


@attrs.frozen
class _Gradients:
    """Of the first step, with the model in evaluation mode, by what was trained on."""

    first_twice: Any
    second_twice: Any
    both: Any
    #: Of one batch of all these rows; None if the example's data cannot be cut otherwise.
    whole: Any


@check(
    "trainer.accumulates",
    requires=("trainer.trains",),
    capability=lambda subject: None if subject.capabilities.accumulate else "it does not declare accumulate",
)
def accumulates(subject: Subject) -> None:
    """Two batches that are accumulated train like one large batch.

    With accumulate = 2, train_step gets a tuple of two prepared batches. The kit compares what the optimizer is about
    to apply in the first step: for two batches, for each of them twice, and for one batch of twice the size. The
    gradient of both must be the mean of that of each, and as long as that of the large batch. Dropout and batch
    normalisation are switched to evaluation mode for it, so that a row's gradient does not depend on the others.

    What breaks it: losses that are added up and not divided by the number of batches (the step is then twice as long),
    zero_grad() inside the loop, and a return after the first batch. Divide each loss by the rows of all batches.
    """
    found = _gradients(subject)
    first, second, both = found.first_twice, found.second_twice, found.both
    if both.shape != first.shape or both.shape != second.shape:
        raise NotApplicable("other parameters have gradients in one batch than in another")
    mean, apart = (first + second) / 2, float((first - second).norm())
    length = float(mean.norm())
    distances = {
        "the first batch": float((both - first).norm()),
        "the last batch": float((both - second).norm()),
        "both": float((both - mean).norm()),
    }
    nearest = min(distances, key=lambda name: distances[name])
    if apart > _ALIKE * length and (nearest != "both" or distances["both"] > _TOLERANCE * max(apart, 0.1 * length)):
        what = "neither" if nearest == "both" else f"that of {nearest} alone"
        raise ConformanceError(
            expected=f"the gradient of two batches to be the mean of theirs, of length {length:.4g}",
            got=f"{what}: {distances['both']:.4g} from the mean, {distances['the first batch']:.4g} from that of the"
            f" first batch and {distances['the last batch']:.4g} from that of the last",
            fix="Call backward() for every batch of the tuple, zero_grad() before or after all of them, and"
            " optimizer.step() once.",
        )
    if found.whole is None:
        return
    ratio = float(both.norm() / found.whole.norm()) if float(found.whole.norm()) else 1.0
    if not 1 / math.sqrt(2) < ratio < math.sqrt(2):
        raise ConformanceError(
            expected=f"a gradient as long as that of one batch of all rows, {float(found.whole.norm()):.4g}",
            got=f"{float(both.norm()):.4g}, {ratio:.2g} times as long",
            fix="Divide each loss by the rows of all batches, or by the number of batches, before backward().",
        )


def _gradients(subject: Subject) -> _Gradients:
    def of(*places: int, **changes: Any) -> Any:
        def scene(stage: Stage) -> Any:
            size = stage.ctx.job.batch_size
            batches = stage.raw_batches(2)
            return gradient_of_step(stage, *(stage.prepared(batches[place], place * size) for place in places))

        return on_stage(subject, scene, precision="fp32", **changes)

    return _Gradients(
        first_twice=of(0, 0, accumulate=2),
        second_twice=of(1, 1, accumulate=2),
        both=of(0, 1, accumulate=2),
        whole=_of_whole(subject, of),
    )


def _of_whole(subject: Subject, of: Any) -> Any:
    dataset = subject.job.get("dataset")
    if dataset is None:
        return None
    try:
        return of(0, accumulate=None, dataset={**dataset, "batch_size": 2 * dataset.get("batch_size", 32)})
    except HostcoreError:  # there are fewer rows
        return None


@check("trainer.precision", requires=("trainer.trains",), variants=("bf16", "fp16"))
def precision(subject: Subject, name: str) -> None:
    """It computes in the precision that it declares.

    The example is trained for three steps with `precision` set. All metrics must be finite, and not the same to the
    last bit as in fp32: then the setting would have no effect, and a run that asks for it would take twice the memory
    and the time that its user expects.

    Compute the model under `with ctx.autocast():`, and the loss in float32 (logits.float()). fp16 needs the gradient
    scaler as well: ctx.scaler.scale(loss).backward(), ctx.scaler.step(optimizer), ctx.scaler.update(). A precision
    that the trainer does not handle does not belong into CAPABILITIES.precisions.
    """
    if name not in subject.capabilities.precisions:
        raise NotApplicable(f"it does not declare {name}")

    def scene(stage: Stage) -> list[dict[str, float]]:
        return [stage.metrics(result) for result in stage.steps(3)]

    try:
        metrics = on_stage(subject, scene, precision=name)
    except HostcoreError as error:
        if error.code == "precision.unavailable":
            raise NotApplicable(f"this machine does not compute in {name}") from error
        raise
    for step, values in enumerate(metrics, 1):
        lost = [one for one, value in values.items() if not math.isfinite(value)]
        if lost:
            raise ConformanceError(
                expected=f"finite metrics in {name}",
                got=f"{lost[0]} = {values[lost[0]]} at step {step}",
                fix="Compute the loss in float32: logits.float() before the loss, outside of ctx.autocast().",
            )
    plain = subject.shared("trainer.precision", lambda: on_stage(subject, scene, precision="fp32"))
    if metrics and first_difference(plain, metrics) is None:
        raise ConformanceError(
            expected=f"other roundings in {name} than in fp32",
            got=f"the same metrics to the last bit in all {len(metrics)} steps: {metrics[0]}",
            fix=f'Run the model under ctx.autocast(), or take "{name}" out of CAPABILITIES.precisions.',
        )
