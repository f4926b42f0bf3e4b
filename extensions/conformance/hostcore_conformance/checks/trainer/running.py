"""That the example trains at all, by the real host, and reports what a run needs."""

import math
from collections.abc import Sequence
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.stage import Stage, losses_in, on_stage
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.rehearsal import Rehearsal, rehearse, require_job
from hostcore_conformance.subject import Subject

STEPS: Final = 6
#: What a rehearsal leaves out to train alone.
TRAINING_ALONE: Final[dict[str, Any]] = {"validation": None, "test": None, "samples": None}


def baseline(subject: Subject) -> Rehearsal:
    """A run of the example: six steps of training alone, every metric recorded."""
    return subject.shared("trainer.baseline", lambda: run_alone(subject))


def run_alone(subject: Subject, callbacks: Sequence[Any] = ()) -> Rehearsal:
    """The same once more.

    :param callbacks: As a job names them.
    """
    return rehearse(subject, **TRAINING_ALONE, callbacks=list(callbacks))


@check("trainer.trains")
def trains(subject: Subject) -> None:
    """The example job trains for six steps.

    The kit runs the author's example job by the real host: setup, configure, six times prepare_batch and train_step,
    a final checkpoint, teardown. Nearly all other checks need this one.

    The example is a small job: a few dozen rows of data, or mock_batches, and hyperparameters that make the model
    small. Write it to tests/job.json, and name it in pyproject.toml under [tool.hostcore.conformance.NAME] as
    job = "tests/job.json"; or give it with --job. A failure here is the run's own: `hostcore run` on the job shows
    the same.
    """
    require_job(subject)
    run = baseline(subject).require_success(f"a run of the example job for {STEPS} steps")
    if run.result.step != STEPS:
        raise ConformanceError(
            expected=f"{STEPS} steps",
            got=f"a run that ended after step {run.result.step}: {run.result.reason or 'it gave no reason'}",
            fix="Leave the end of a run to the host: train_step makes one step, and request_stop is for a reason.",
        )


@check("trainer.metrics_finite", requires=("trainer.trains",))
def metrics_finite(subject: Subject) -> None:
    """Every metric of every step is a finite number.

    The kit reads all metrics of the six steps of the example. A metric is a number, or a tensor with one element.

    A NaN in the first steps is mostly a logarithm or a root of zero, a division by the number of rows that have some
    property when none has, or a learning rate that is far too high. Recorded, it becomes null; what watches the
    metric (early stopping, the best checkpoint) is blind from then on.
    """
    for event in baseline(subject).events:
        nonfinite = getattr(event.payload, "nonfinite", None)
        if nonfinite:
            named = ", ".join(nonfinite)
            raise ConformanceError(
                expected="finite metrics",
                got=f"{named} at step {event.step}, which is not",
                fix="Guard the division or the logarithm that gives it, or leave a metric out that does not exist at a"
                " step.",
            )


@check("trainer.reports_loss", level="should", requires=("trainer.trains",))
def reports_loss(subject: Subject) -> None:
    """Every step reports a loss.

    StepResult.metrics has a `loss`, which is recorded as train/loss: that is the curve that every tool draws first,
    and what `hostcore compare` compares. Other names are recorded as they are.

    A trainer that has several losses reports the one that it minimises as `loss`, and the parts beside it.
    """
    run = baseline(subject)
    recorded = run.metrics
    losses = [step for step, name in recorded if name == "train/loss"]
    if len(losses) == STEPS:
        return
    others = sorted({name for _, name in recorded})
    raise ConformanceError(
        expected=f"a metric called loss in each of the {STEPS} steps",
        got=f"it in {len(losses)} of them; there are {', '.join(others) or 'no metrics at all'}",
        fix='Return StepResult(metrics={"loss": loss.detach(), ...}) from train_step.',
    )


@check("trainer.metrics_detached", level="should", requires=("trainer.trains",))
def metrics_detached(subject: Subject) -> None:
    """Metrics carry no graph.

    The kit trains two steps and looks at the tensors in StepResult.metrics. Returning them is right, and better than
    .item(), which makes a GPU wait at every step; but a loss that still knows how it was computed keeps the whole
    forward pass in memory until the next step is done.

    Write metrics={"loss": loss.detach()}.
    """

    def scene(stage: Stage) -> list[str]:
        return [
            name
            for result in stage.steps(2)
            for name, value in result.metrics.items()
            if getattr(value, "requires_grad", False)
        ]

    attached = on_stage(subject, scene)
    if attached:
        name = attached[0]
        raise ConformanceError(
            expected="metrics without a graph",
            got=f"{', '.join(dict.fromkeys(attached))} of train_step with requires_grad=True",
            fix=f'Detach it: metrics={{"{name}": {name}.detach()}}.',
        )


@check("trainer.reproducible", requires=("trainer.trains",))
def reproducible(subject: Subject) -> None:
    """The same job gives the same losses.

    The example is run twice in one process, with one seed, and the loss of every step is compared: bit for bit on a
    CPU, to four digits on other devices. The host seeds Python, NumPy and torch before setup, and gives both runs
    the same rows in the same order.

    What breaks it: a generator of one's own without ctx.job.seed (np.random.default_rng()), the clock, the order of a
    set, and what the first run left behind for the second in a class attribute, a module-level cache or a default
    argument. All that a trainer keeps belongs in the state that configure returns, or on self.
    """
    first, second = baseline(subject), run_alone(subject)
    second.require_success("a second run of the example in the same process")
    one, other = _losses(first), _losses(second)
    for key in sorted(one.keys() | other.keys()):
        if not _equal(one.get(key), other.get(key), exact=first.on_cpu):
            step, name = key
            raise ConformanceError(
                expected="the same losses from the same job and seed",
                got=f"{name} at step {step}: {one.get(key)!r} in the first run, {other.get(key)!r} in the second",
                fix="Draw from the global generators, which the host seeds, or seed your own from ctx.job.seed; keep"
                " nothing in class attributes or modules.",
            )


def _losses(run: Rehearsal) -> dict[tuple[int, str], float | None]:
    names = losses_in({name: None for _, name in run.metrics})
    return {key: value for key, value in run.metrics.items() if key[1] in names}


def _equal(one: float | None, other: float | None, *, exact: bool) -> bool:
    if one is None or other is None or exact:
        return one == other
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
