"""Check of ``repeatable``: a step can be made again up to its update."""

from typing import Any

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.learning import gradients_seen
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import KeepsStep


class _BrokenOff(BaseException):
    """Raised where the update would begin."""


@check(
    "trainer.repeats",
    since="1.1.0",
    capability=lambda subject: None if subject.capabilities.repeatable else "it does not declare repeatable",
)
def repeats(subject: Subject) -> None:
    """A step can be made again up to its update.

    The kit breaks the second step off in optimizer.step(), brings back buffers, gradients and random generators, and
    makes the step again. Its gradients, and what state_dict returns afterwards, must be the same to the last bit as
    those of a step that was made once. What a state with keep_step keeps is put back as well.

    What breaks it: an average, a counter or a schedule that changes before optimizer.step(); a generator of the
    trainer's own; gradients that are kept from step to step; a train_step that catches everything. Change such things
    behind optimizer.step(), or declare repeatable=False.
    """
    once, again = _second_step(subject, breaks_off=False), _second_step(subject, breaks_off=True)
    difference = in_words(once, again, "the step")
    if difference is not None:
        raise ConformanceError(
            expected="a step that is made again to be the same as one that is made once",
            got=difference,
            fix="Change nothing but gradients, buffers and the global random generators before optimizer.step().",
        )


def _second_step(subject: Subject, *, breaks_off: bool) -> dict[str, Any]:
    """Make two steps, of which the second may be begun in vain: its gradients, and the state behind it."""

    def scene(stage: Stage) -> dict[str, Any]:
        first, second = (stage.prepared(one) for one in stage.raw_batches(2))
        stage.step(first)
        if breaks_off:
            _begin_in_vain(stage, second)
        with gradients_seen() as seen:
            stage.step(second)
        return {"gradients": list(seen), "state_dict": stage.call("state_dict", stage.state)}

    return on_stage(subject, scene, precision="fp32", accumulate=None, global_batch_size=None)


def _begin_in_vain(stage: Stage, prepared: Any) -> None:
    from hostcore.worker.modes import modules_in
    from hostcore.worker.randomness import kept
    from hostcore_toolkit import before_updates

    models = modules_in(stage.state)
    buffers = [(one, one.detach().clone()) for model in models for one in model.buffers()]
    put_back = stage.state.keep_step(prepared) if isinstance(stage.state, KeepsStep) else None
    had_none = [one for model in models for one in model.parameters() if one.grad is None]
    has_begun = False
    with kept(), before_updates(_break_off):
        try:
            stage.call("train_step", prepared, stage.state, stage.ctx)
        except _BrokenOff:
            has_begun = True
    if not has_begun:
        raise ConformanceError(
            expected="train_step to make a step of an optimizer of torch, and to let what it raises through",
            got="none that broke off there",
            fix="Declare repeatable=False for a trainer whose update is made elsewhere.",
        )
    for buffer, before in buffers:
        buffer.copy_(before)
    for model in models:
        model.zero_grad(set_to_none=False)
    for parameter in had_none:
        parameter.grad = None
    if put_back is not None:
        put_back()


def _break_off(_optimizer: Any) -> None:
    raise _BrokenOff
