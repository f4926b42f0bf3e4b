"""Checks of validations, tests and samples: they are correct, and the training does not notice them."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_conformance.check import check, has_hook
from hostcore_conformance.checks.trainer.stage import Stage, losses_in, models_of, on_stage, own_copy
from hostcore_conformance.differences import ValueDifference, first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject

#: The trainer's methods of evaluation, and the data of the job that each is for.
_SPLITS: Final = {"validate_step": "validation", "test_step": "test"}


def _require_split(subject: Subject, method: str) -> str:
    """The key of the job that has the data for a method."""
    split = _SPLITS[method]
    if not subject.has(method):
        raise NotApplicable(f"it has no {method}")
    if subject.job.get(split) is None:
        raise NotApplicable(f'the example job has no "{split}" data; give it some rows', wants_example=True)
    return split


def _require_samples(subject: Subject) -> None:
    if not subject.has("generate_sample"):
        raise NotApplicable("it has no generate_sample")
    if not subject.job.get("samples"):
        raise NotApplicable(
            'the example job has no "samples" to generate; give it one: "samples": [{"prompt": "..."}]',
            wants_example=True,
        )


def _evaluate(stage: Stage, split: str) -> dict[str, float]:
    evaluation = stage.training.validation if split == "validation" else stage.training.test
    assert evaluation is not None
    evaluated = evaluation.run()
    assert evaluated is not None
    return evaluated.metrics


@check(
    "trainer.leaves_training_alone",
    requires=("trainer.trains",),
    variants=("validate_step", "test_step", "generate_sample"),
)
def leaves_training_alone(subject: Subject, method: str) -> None:
    """Training is the same with and without a validation, a test or a sample.

    The example is trained for four steps twice; the second time with a validation, a test or a sample between the
    second and the third. What state_dict returns must be the same before and after it, and the losses of the third and
    the fourth step must be equal to those of the training that was left alone.

    The host takes care of much: evaluation mode for all modules that it finds in the state, no gradients, random
    generators of its own. What remains is the trainer's: statistics that validate_step updates, averages and counters,
    model.train() in validate_step, and a model that the host cannot find, because it is on self and not in the state,
    for which eval() was called and train() was not.
    """
    if method == "generate_sample":
        _require_samples(subject)
    else:
        _require_split(subject, method)

    def train(look: Callable[[Stage], None]) -> tuple[ValueDifference | None, dict[str, float]]:
        def scene(stage: Stage) -> tuple[ValueDifference | None, dict[str, float]]:
            changed: ValueDifference | None = None
            losses: dict[str, float] = {}
            for number, result in enumerate(stage.steps(4), 1):
                found = losses_in(stage.metrics(result))
                losses |= {f"{name} of step {number}": value for name, value in found.items()}
                if number == 2:
                    before = _kept(stage)
                    look(stage)
                    changed = first_difference(before, _kept(stage))
            return changed, losses

        return on_stage(subject, scene)

    def look(stage: Stage) -> None:
        if method == "generate_sample":
            with contextlib.suppress(FileExistsError):
                stage.training.sampling.folder.mkdir(parents=True)  # type: ignore[union-attr]
            stage.training.sampling.run()  # type: ignore[union-attr]
        else:
            _evaluate(stage, _SPLITS[method])

    changed, metrics = train(look)
    if changed:
        raise ConformanceError(
            expected=f"the state as it was before {method}",
            got=f"it changed: {changed.then}",
            fix=f"Update nothing in {method}; leave train() and eval() of the model to the host, and changes of the"
            " state to train_step.",
        )
    _, undisturbed = subject.shared("trainer.undisturbed", lambda: train(lambda _: None))
    if different := first_difference(undisturbed, metrics):
        raise ConformanceError(
            expected=f"training to go on after {method} as without it",
            got=f"other losses, without it and with it: {different.then}",
            fix="Return the model in the state, so that the host finds it and puts it back into training mode; keep no"
            " count on self.",
        )


def _kept(stage: Stage) -> Any:
    """A copy of what a checkpoint would hold."""
    import copy

    parameters = {name: one.detach().clone() for name, one in models_of(stage.state).items()}
    return {**parameters, "state_dict": copy.deepcopy(stage.call("state_dict", stage.state))}


@check("trainer.evaluates_one_row", requires=("trainer.trains",), capability=has_hook("validate_step"))
def evaluates_one_row(subject: Subject) -> None:
    """A validation can end with a batch of one row.

    Training drops the rows that do not fill a batch; a validation and a test do not. validate_step is called, in
    evaluation mode, with a batch of a single row.

    What breaks it: squeeze() without a dimension, which takes that of the rows away as well (write squeeze(1)), a
    batch size that is written into the code, statistics over the batch, such as a standard deviation, that one row
    does not have, and a mean over the rows of a class that the batch lacks.
    """
    split = _require_split(subject, "validate_step")

    def scene(stage: Stage) -> dict[str, float]:
        return _score(stage, _evaluation_rows(stage, split).slice(0, 1))[0]

    try:
        metrics = on_stage(subject, scene)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise ConformanceError(
            expected="validate_step to take a batch of one row",
            got=subject.in_words(error),
            fix="Give squeeze() its dimension, squeeze(1), and take the number of rows from the batch.",
        ) from error
    lost = [name for name, value in metrics.items() if not math.isfinite(value)]
    if lost:
        raise ConformanceError(
            expected="finite metrics of a batch of one row",
            got=f"{lost[0]} = {metrics[lost[0]]}",
            fix="One row has no variance and no correlation, and most classes have no row in it: leave a metric out of"
            " the batches that it cannot be computed from.",
        )


@check("trainer.evaluation_weight", requires=("trainer.evaluates_one_row",), capability=has_hook("validate_step"))
def evaluation_weight(subject: Subject) -> None:
    """The mean over the validation data does not depend on how they are cut into batches.

    The host averages what validate_step reports, Σ(weight·metric)/Σweight. The kit scores some rows at once, and
    again in two parts of different sizes. Where the parts give the whole if they are weighted by their rows, they must
    also give it with the weights that the trainer returned; and a loss must be a mean, not a sum.

    What breaks it: weight=1 for every batch, which gives the rows of the last, short batch more weight than the others;
    the weight of the training batch; a loss with reduction="sum". Return weight=len(labels), or leave it out; for a
    mean over tokens, their number. Metrics that are no mean by nature are not asked.
    """
    split = _require_split(subject, "validate_step")

    def scene(stage: Stage) -> list[tuple[dict[str, float], float, int]]:
        rows = _evaluation_rows(stage, split)
        if rows.num_rows < 3:
            raise NotApplicable('the example\'s "validation" data need three rows, and a batch_size of as many')
        cut = max(rows.num_rows * 2 // 3, 1)
        parts = (rows, rows.slice(0, cut), rows.slice(cut))
        return [(*_score(stage, own_copy(part)), part.num_rows) for part in parts]

    (whole, _, _), (first, *one), (second, *other) = on_stage(subject, scene)
    for name in whole.keys() & first.keys() & second.keys():
        total, parts = whole[name], (first[name], second[name])
        weights, rows = ((one[which], other[which]) for which in (0, 1))
        if _near(_mean(parts, weights), total):
            continue
        if _near(_mean(parts, rows), total):
            raise ConformanceError(
                expected=f"{name} of {sum(rows)} rows, {total:.6g}, from parts of {rows[0]} and {rows[1]}",
                got=f"{_mean(parts, weights):.6g}: {parts[0]:.6g} with weight {weights[0]:g}, and {parts[1]:.6g} with"
                f" weight {weights[1]:g}",
                fix="Return StepResult(..., weight=len(labels)) from validate_step: the rows behind the metrics.",
            )
        if "loss" in name and _near(sum(parts), total):
            raise ConformanceError(
                expected=f"{name} as a mean, the same for few rows and for many",
                got=f"a sum: {parts[0]:.6g} for {rows[0]} rows, {parts[1]:.6g} for {rows[1]}, {total:.6g} for all",
                fix='Divide the loss by the number of rows, or use reduction="mean".',
            )


def _mean(values: tuple[float, ...], weights: tuple[float, ...]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights) if sum(weights) else math.nan


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=2e-3, abs_tol=1e-7)


def _evaluation_rows(stage: Stage, split: str) -> Any:
    """The first batch of an evaluation, in memory of its own."""
    feed = getattr(stage.parts.prepared, split)
    batches = feed.batches()
    batch = own_copy(next(batches).raw_batch)
    batches.close()
    return batch


def _score(stage: Stage, rows: Any) -> tuple[dict[str, float], float]:
    """Return metrics and weight of validate_step for some rows, called and read as by the host."""
    from hostcore.worker.metrics import evaluation_name, read_metrics, read_weight
    from hostcore.worker.modes import evaluating

    with evaluating(stage.state, seed=stage.ctx.job.seed, step=0, rank=0):
        result = stage.call("validate_step", stage.prepared(rows), stage.state, stage.ctx)
        metrics = read_metrics(result, "validate_step", name_of=evaluation_name("val"))
        return metrics, read_weight(result, "validate_step", rows=rows.num_rows)


@check(
    "trainer.evaluation_metrics",
    since="1.1.0",
    requires=("trainer.reproducible",),
    capability=has_hook("evaluation_metrics"),
)
def evaluation_metrics(subject: Subject) -> None:
    """The result of evaluation_metrics depends on the rows of its evaluation alone.

    The example is trained for two steps and evaluated; then once more with an evaluation before the two steps, which
    must change nothing; and at last as on a rank that has fewer rows than another: it repeats some, for which
    ctx.batch_counts is False. evaluation_metrics must find the same each time.

    What breaks it: predictions of one evaluation that are still there in the next, because nothing begins anew after
    they were computed (metric.reset()), and rows that are added up although ctx.batch_counts is False, which makes a
    metric depend on the number of ranks.
    """
    split = _require_split(subject, "validate_step" if subject.has("validate_step") else "test_step")

    def evaluated(*, before: bool, repeats: bool) -> dict[str, float]:
        def scene(stage: Stage) -> dict[str, float]:
            evaluation = stage.training.validation if split == "validation" else stage.training.test
            assert evaluation is not None
            if before:
                evaluation.run()
            for _ in stage.steps(2):
                pass
            feed: Any = _Repeating(evaluation.feed) if repeats else evaluation.feed
            found = attrs.evolve(evaluation, feed=feed).run()
            means = attrs.evolve(evaluation, evaluation_metrics=None).run()
            assert found is not None and means is not None
            return {name: value for name, value in found.metrics.items() if name not in means.metrics}

        return on_stage(subject, scene)

    alone = evaluated(before=False, repeats=False)
    if different := first_difference(alone, evaluated(before=True, repeats=False)):
        raise ConformanceError(
            expected="the same metrics with another evaluation before as without it",
            got=f"others, without it and with it: {different.then}",
            fix="Begin anew in evaluation_metrics, after the metrics were computed: metric.reset(), or list.clear().",
        )
    if different := first_difference(alone, evaluated(before=False, repeats=True)):
        raise ConformanceError(
            expected="the same metrics on a rank that repeats rows, which do not count",
            got=f"others, without them and with them: {different.then}",
            fix="Add up predictions only if ctx.batch_counts.",
        )


@attrs.frozen(eq=False)
class _Repeating:
    """A feed that ends with rows that were there already, and do not count: the first third of its first batch."""

    feed: Any

    @property
    def first_row(self) -> int:
        return int(self.feed.first_row)

    @property
    def batch_size(self) -> int:
        return int(self.feed.batch_size)

    @property
    def parts(self) -> Mapping[str, int]:
        return dict(self.feed.parts)

    def batches(self, **options: Any) -> Iterator[Any]:
        repeated = None
        for batch in self.feed.batches(**options):
            repeated = repeated or batch._replace(raw_batch=own_copy(batch.raw_batch), counts=False)
            yield batch
        assert repeated is not None
        rows = repeated.raw_batch
        for _ in range(3):
            yield repeated._replace(raw_batch=own_copy(rows.slice(0, max(rows.num_rows // 3, 1))))


@check("trainer.samples", requires=("trainer.trains",), capability=has_hook("generate_sample"))
def samples(subject: Subject) -> None:
    """A sample is written into its folder, and nowhere else.

    generate_sample is called for every request of the example's `samples`, after one step and in another working
    directory. It must write at least one file into output_dir and none elsewhere, and what it returns, if anything,
    must be plain JSON.

    The host keeps the folder as a whole: it appears under its name when it is complete, is uploaded, and shown. Files
    that are written to a path of the trainer's own are lost, and two ranks or two runs write over each other's. Paths
    and tensors in the returned mapping are what breaks it most often: write str(path) and float(tensor).
    """
    _require_samples(subject)
    elsewhere, target = subject.folder(), subject.folder()

    def scene(stage: Stage) -> list[Any]:
        from hostcore.worker.modes import evaluating

        next(stage.steps(1), None)
        told = []
        with contextlib.chdir(elsewhere), evaluating(stage.state, seed=stage.ctx.job.seed, step=1, rank=0):
            for number, request in enumerate(stage.parts.prepared.spec.samples):
                folder = target / str(number)
                folder.mkdir()
                told.append(stage.call("generate_sample", stage.state, 1, request, str(folder), stage.ctx))
        return told

    for number, told in enumerate(on_stage(subject, scene)):
        if not any(path.is_file() for path in (target / str(number)).rglob("*")):
            raise ConformanceError(
                expected="a file in output_dir",
                got=f"{_strays(elsewhere) or 'none'}, for request {number}",
                fix='Write to Path(output_dir) / "sample.txt".',
            )
        _require_plain(told, number)
    if strays := _strays(elsewhere):
        raise ConformanceError(
            expected="files in output_dir alone", got=strays, fix="Write to Path(output_dir) / name."
        )


def _strays(folder: Path) -> str:
    found = [path.relative_to(folder) for path in folder.rglob("*")]
    return f"{', '.join(map(str, found[:3]))} in the working directory" if found else ""


def _require_plain(told: Any, number: int) -> None:
    if told is None:
        return
    try:
        json.dumps(told, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConformanceError(
            expected="plain JSON from generate_sample: a mapping of text, numbers and lists",
            got=f"{told!r} for request {number}: {error}",
            fix="Convert what is not: str(path), float(tensor).",
        ) from error
