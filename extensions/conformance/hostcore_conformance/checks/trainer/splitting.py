"""Checks of ``split_on_oom``: a step can be made again, with its batch in parts."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.learning import gradient_of_step
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject

#: How far the gradient of a batch in parts may be from that of the whole batch, of its length.
_TOLERANCE: Final = 0.01

#: A step takes one batch.
_PLAIN: Final = {"precision": "fp32", "accumulate": None, "global_batch_size": None}


class _Shortage(Exception):
    """Raised where memory would have run out at the last moment."""


@check(
    "trainer.splits",
    since="1.1.0",
    requires=("trainer.accumulates",),
    capability=lambda subject: None if subject.capabilities.split_on_oom else "it does not declare split_on_oom",
)
def splits(subject: Subject) -> None:
    """A step for which memory runs out can be made again, with its batch in parts.

    The kit breaks a step off inside of ctx.begin_update() and compares what state_dict returns with what it returned
    before the step. Then it trains on a batch, and on the same batch in two parts, one of them of a single row: what
    the optimizer is about to apply must be the same up to rounding. Dropout is switched off for that.

    What breaks it: a train_step that catches what ctx.begin_update() raises, or changes a scheduler, an average or a
    counter before; parts that weigh the same whatever their rows; batch normalisation in training mode, which sees
    other rows in a part than in the batch; a transform_batch that returns what rows cannot be taken of. Declare
    split_on_oom=False where one of these has to be: when memory runs out, the run fails then.
    """
    _check_rows(subject)
    _check_promise(subject)
    whole, parts = _gradient(subject, in_parts=False), _gradient(subject, in_parts=True)
    again = _gradient(subject, in_parts=False, seed=subject.job.get("seed", 0) + 1)
    if whole.shape != parts.shape or whole.shape != again.shape:
        raise NotApplicable("other parameters have gradients in one step than in another")
    length = float(whole.norm())
    if float((whole - again).norm()) > _TOLERANCE * length:
        raise NotApplicable("its gradients depend on random numbers, also in evaluation mode")
    distance = float((whole - parts).norm())
    if distance > _TOLERANCE * length:
        raise ConformanceError(
            expected=f"the gradient of the whole batch, of length {length:.4g}",
            got=f"one that is {distance:.4g} from it, for the same batch in two parts",
            fix="Weigh the loss of each prepared batch by its share of the rows or tokens of all of them.",
        )


def _check_rows(subject: Subject) -> None:
    from hostcore.worker.feed.splitting import rows_of

    def scene(stage: Stage) -> tuple[int, str]:
        transformed = stage.transformed(stage.raw_batches(1)[0])
        return rows_of(transformed), type(transformed).__name__

    rows, kind = on_stage(subject, scene)
    if rows == 0 and "dataset" not in subject.job:
        raise NotApplicable("the example has no data of which rows could be taken")
    if rows == 0:
        raise ConformanceError(
            expected="batches of which rows can be taken: record batches, or mappings of arrays, tensors or lists that"
            " have an element for each row",
            got=f"a {kind} from transform_batch",
            fix="Return a dictionary of arrays from transform_batch, or declare split_on_oom=False.",
        )
    if rows == 1:
        raise NotApplicable("the batches of the example have one row")


def _check_promise(subject: Subject) -> None:
    """Break the second step off, in which an optimizer has a state."""

    def scene(stage: Stage) -> tuple[bool, list[str], str | None]:
        from hostcore.worker.randomness import kept

        first, second = (stage.prepared(one) for one in stage.raw_batches(2))
        stage.step(first)
        before = copy.deepcopy(stage.call("state_dict", stage.state))
        has_said = False
        with kept(), _normalising(stage) as normalising, _short_of_memory(stage):
            try:
                stage.call("train_step", second, stage.state, stage.ctx)
            except _Shortage:
                has_said = True
        after = copy.deepcopy(stage.call("state_dict", stage.state))
        return has_said, normalising, in_words(before, after, "state_dict")

    has_said, normalising, difference = on_stage(subject, scene, **_PLAIN)
    if not has_said:
        raise ConformanceError(
            expected="train_step to call ctx.begin_update()",
            got="no call, or one whose error it has caught: it raises when memory has run out on another rank",
            fix="Call it once, behind the last backward() and before the optimizer's step, and let its error through.",
        )
    if normalising:
        raise ConformanceError(
            expected="rows that do not depend on the others of their batch",
            got=f"a {normalising[0]} in training mode",
            fix="Declare split_on_oom=False, or normalise otherwise, with torch.nn.GroupNorm for instance.",
        )
    if difference is not None:
        raise ConformanceError(
            expected="the state before the step, when it breaks off in ctx.begin_update()",
            got=difference,
            fix="Call ctx.begin_update() before anything but gradients changes: averages, schedules, counters.",
        )


def _gradient(subject: Subject, *, in_parts: bool, seed: int | None = None) -> Any:
    """Of the first step, with the model in evaluation mode: a flat vector."""

    def scene(stage: Stage) -> Any:
        import torch

        from hostcore.worker.feed.splitting import cut, rows_of

        if seed is not None:
            torch.manual_seed(seed)
        raw = stage.transformed(stage.raw_batches(1)[0])
        parts = tuple(cut(raw, rows_of(raw) - 1)) if in_parts else (raw,)
        return gradient_of_step(stage, *(stage.call("prepare_batch", one, stage.state, stage.ctx) for one in parts))

    return on_stage(subject, scene, **_PLAIN)


@contextmanager
def _short_of_memory(stage: Stage) -> Iterator[None]:
    """Meanwhile, ``ctx.begin_update()`` raises :class:`_Shortage`. The trainer may hold the context itself."""
    host = stage.ctx._host

    class Short:
        def __getattr__(self, name: str) -> Any:
            return getattr(host, name)

        def begin_update(self) -> None:
            raise _Shortage

    stage.ctx._host = Short()
    try:
        yield
    finally:
        stage.ctx._host = host


@contextmanager
def _normalising(stage: Stage) -> Iterator[list[str]]:
    """Collect the classes of the modules that normalise over their batch meanwhile."""
    from torch.nn.modules.batchnorm import _BatchNorm

    from hostcore.worker.modes import modules_in

    seen: list[str] = []

    def look(module: Any, _arguments: Any) -> None:
        if module.training:
            seen.append(type(module).__name__)

    found = [one for model in modules_in(stage.state) for one in model.modules() if isinstance(one, _BatchNorm)]
    handles = [one.register_forward_pre_hook(look) for one in found]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
