"""Checks of a trainer's work on batches, and of the batches that it can take."""

import copy
import pickle
from typing import Any

from hostcore.errors import all_errors
from hostcore.job.names import DATA_SECTIONS
from hostcore_conformance.check import check, has_hook
from hostcore_conformance.checks.trainer.stage import Stage, on_stage, own_copy, transform_of
from hostcore_conformance.differences import ValueDifference, first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject, brought_sections
from hostcore_hookspecs.errors import HostcoreError


@check("trainer.data_sections", since="1.1.0", capability=has_hook("data_sections"))
def data_sections(subject: Subject) -> None:
    """The result of data_sections is data as a job would name it, and the same whenever it is called.

    The kit calls one instance twice, a second instance, and one as rank 1 of 2.

    Each rank asks, and so does each start of a run: what a resumed run trains on is what it was asked for before, or it
    is refused. What breaks it: a random part in it, a list of files in the order of the disk, a share of the data for
    each rank (the host shares it out), numbers that depend on how often it was called.
    """
    job = {key: value for key, value in subject.job.items() if key not in ("mock_batches", *DATA_SECTIONS)}
    component = subject.component()
    try:
        first = brought_sections(subject, job, component=component)
    except HostcoreError as error:
        one = all_errors(error)[0]
        raise ConformanceError(
            expected="sections as a job would have them",
            got=f"{one.message}{f', at {one.pointer}' if one.pointer else ''}",
            fix=one.hint or "Return what a job would have under dataset, validation and test.",
        ) from error
    others = {
        "when it is asked again": brought_sections(subject, job, component=component),
        "of another instance": brought_sections(subject, job),
        "on rank 1 of 2": brought_sections(subject, job, rank=1, world_size=2),
    }
    for when, other in others.items():
        if different := first_difference(first, other):
            raise ConformanceError(
                expected=f"the same sections {when}",
                got=f"others: {different.then}",
                fix="Return what depends on the hyperparameters and ctx.seed alone, with files in sorted order.",
            )


@check("trainer.leaves_batch_alone", requires=("trainer.trains",))
def leaves_batch_alone(subject: Subject) -> None:
    """No method writes into the rows that it is given.

    The kit keeps a copy of a batch, hands the batch through transform_batch, prepare_batch and train_step, and looks
    after each whether all rows are as they were.

    A raw batch is a view into a whole window of data, and toolkit.to_tensors makes tensors over that same memory. An
    operation in place (tensor.sub_(mean), images /= 255, array[mask] = 0) therefore changes rows that other batches
    show, or ends the process, if the memory is a file that is mapped read-only. Write tensor = tensor - mean, or
    clone() first.
    """

    def scene(stage: Stage) -> tuple[str, str] | None:
        raw_batch = _own(stage.raw_batches(1)[0])
        before = _own(raw_batch)
        transformed = stage.transformed(raw_batch)
        if changed := first_difference(before, raw_batch):
            return "transform_batch", changed.then
        prepared = stage.call("prepare_batch", transformed, stage.state, stage.ctx)
        if changed := first_difference(before, raw_batch):
            return "prepare_batch", changed.then
        stage.step((prepared,) * stage.training.job.accumulate if stage.accumulates else prepared)
        if changed := first_difference(before, raw_batch):
            return "train_step", changed.then
        return None

    found = on_stage(subject, scene)
    if found:
        method, changed = found
        raise ConformanceError(
            expected="the rows of the batch as they were",
            got=f"them changed by {method}: {changed}",
            fix="Clone before writing in place: tensor = tensor.clone(), or write tensor = tensor - mean instead of"
            " tensor.sub_(mean).",
        )


def _own(raw_batch: Any) -> Any:
    import pyarrow as pa

    return own_copy(raw_batch) if isinstance(raw_batch, pa.RecordBatch) else copy.deepcopy(raw_batch)


@check("trainer.another_batch_size", requires=("trainer.trains",))
def another_batch_size(subject: Subject) -> None:
    """The job decides the batch size.

    The example is trained for two steps with another dataset.batch_size: one more than half of its own, so that no
    shape divides by accident.

    What breaks it: a batch size that is written into the code or into the model (view(32, -1), a hidden state or a
    buffer made for 32 rows). Take the number of rows from the tensors, len(labels), or from ctx.job.batch_size.
    """
    dataset = subject.job.get("dataset")
    if dataset is None:
        raise NotApplicable("its example job has no dataset, so the job does not decide how many rows a batch has")
    given = dataset.get("batch_size", 32)
    other = given // 2 + 1 if given > 2 else given + 1

    def scene(stage: Stage) -> list[dict[str, float]]:
        return [stage.metrics(result) for result in stage.steps(2)]

    try:
        on_stage(subject, scene, dataset={**dataset, "batch_size": other}, global_batch_size=None)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise ConformanceError(
            expected=f"to train with a batch_size of {other}, as with the {given} of the example",
            got=subject.in_words(error),
            fix="Take the number of rows from the batch, as by len(labels), or from ctx.job.batch_size.",
        ) from error


@check("trainer.prepare_repeatable", requires=("trainer.trains",))
def prepare_repeatable(subject: Subject) -> None:
    """A batch that is prepared twice is prepared alike.

    prepare_batch is called twice for the same rows, with the global random generators in the same state, and the two
    results are compared. Augmenting at random is fine: from Python's, NumPy's or torch's global generators, which the
    host seeds and stores in checkpoints.

    What breaks it: a generator, a counter or an iterator of the trainer's own on self. It is not part of the
    checkpoint, so a resumed run sees other batches than one that was never interrupted.
    Draw from the global generators, and take the step from ctx.run_state.step.
    """

    def scene(stage: Stage) -> ValueDifference | None:
        from hostcore.worker import randomness

        raw_batch = stage.raw_batches(1)[0]
        generators = randomness.capture()
        first = stage.prepared(_own(raw_batch))
        randomness.restore(generators)
        return first_difference(first, stage.prepared(_own(raw_batch)))

    different = on_stage(subject, scene)
    if different:
        raise ConformanceError(
            expected="the same prepared batch from the same rows and random state",
            got=f"another: {different.then}",
            fix="Keep no generator, counter or iterator on self; draw from the global generators, and count with"
            " ctx.run_state.step.",
        )


@check("trainer.transform_pure", requires=("trainer.trains",), capability=has_hook("transform_batch"))
def transform_pure(subject: Subject) -> None:
    """The result of transform_batch depends on its arguments alone.

    With dataset.workers, transform_batch runs ahead of the loop in other processes, each with an instance of the
    trainer on which neither setup nor configure was called, and its results travel back pickled. The kit does the
    same: it transforms two batches on the trainer that trains, and again on a new instance, in the other order and
    with other global random states; it pickles the results and compares.

    What breaks it: attributes that setup makes (make them on first use, or take them from ctx.hyperparams), a counter
    or cache on self, np.random or torch.rand in place of the `rng` that is passed in, and results that cannot be
    pickled, such as generators, open files and lambdas.
    """

    def scene(stage: Stage) -> tuple[list[Any], list[Any]]:
        from hostcore_toolkit import seed_everything

        raw_batches = [_own(one) for one in stage.raw_batches(2)]
        size = stage.ctx.job.batch_size
        places = [place * size for place in range(len(raw_batches))]
        first = [stage.transformed(_own(one), place) for one, place in zip(raw_batches, places, strict=True)]
        seed_everything(stage.ctx.job.seed + 1)
        elsewhere = transform_of(subject.component(), stage.ctx)
        assert elsewhere is not None
        pairs = [*zip(raw_batches, places, strict=True)]
        try:
            return first, [elsewhere(_own(one), 0, place, place // size) for one, place in reversed(pairs)][::-1]
        except Exception as error:
            raise ConformanceError(
                expected="transform_batch to work on an instance without setup",
                got=subject.in_words(error),
                fix="Make what it needs on first use, or take it from ctx.hyperparams: setup is not called there.",
            ) from error

    first, again = on_stage(subject, scene)
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        try:
            travelled = pickle.loads(pickle.dumps(other))  # noqa: S301 - our own bytes
        except Exception as error:
            raise ConformanceError(
                expected="a result that travels between processes",
                got=f"{type(error).__name__}: {error}",
                fix="Return arrays, tensors on the CPU, record batches or plain values.",
            ) from error
        if different := first_difference(one, travelled):
            raise ConformanceError(
                expected="the same result on every instance, in any order",
                got=f"another for batch {number}: {different.then}",
                fix="Draw from `rng` alone, keep nothing on self, and need nothing that setup or configure make.",
            )
