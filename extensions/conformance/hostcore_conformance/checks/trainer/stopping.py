"""Checks of a trainer's end: on a request to stop, before it has begun, and after an error.

The callbacks that ask for it, or fail, are named by import path in the jobs of rehearsals.
"""

from collections.abc import Generator
from typing import Any, Final

import attrs

from hostcore_conformance.check import check, has_hook
from hostcore_conformance.checks.trainer.running import run_alone
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.markers import hookimpl
from hostcore_hookspecs.run_state import RunState

#: Message of the kit's own failure. A RuntimeError, as most failures in a model are.
OWN_WORDS: Final = "raised by the conformance kit, to see what becomes of an error"

#: The ends of teardown in this process, in order: None, or what it raised. Emptied by who wants to know.
teardowns: list[BaseException | None] = []

_STOPS: Final = {"before_first_step": 0, "after_a_step": 1}


@check("trainer.stops", requires=("trainer.trains",), variants=tuple(_STOPS))
def stops(subject: Subject, when: str) -> None:
    """A run that is asked to stop writes its checkpoint and ends well.

    The example is run with a callback that asks it to stop: before the first step, and after the first. The host ends
    the loop, writes a last checkpoint if there was a step, and calls teardown; the run must have succeeded, at that
    step.

    This is what happens at every Ctrl-C, every preemption and every early stopping, and so it can happen before
    anything was computed. What breaks it: state_dict or teardown that need what only a step makes (self.last_loss), or
    what is there only at the end of the whole training.
    """
    at = _STOPS[when]
    teardowns.clear()
    run = run_alone(subject, [stopper(at)])
    run.require_success(
        f"a run that is asked to stop {'before its first step' if at == 0 else f'after step {at}'}",
        fix="Make everything that state_dict and teardown read in configure, not in train_step.",
    )
    if run.result.step != at or (at > 0 and run.result.final_checkpoint is None):
        raise ConformanceError(
            expected=f"an end after step {at}, with a checkpoint",
            got=f"one after step {run.result.step}, with "
            + (f"the checkpoint {run.result.final_checkpoint}" if run.result.final_checkpoint else "none"),
            fix="Make one step in train_step, and leave the loop to the host.",
        )


@check(
    "trainer.teardown_after_failure",
    requires=("trainer.trains",),
    capability=has_hook("teardown"),
)
def teardown_after_failure(subject: Subject) -> None:
    """Teardown works after a step has failed.

    The example is run with a first step that fails. The host calls teardown however a run ends; it is where files,
    processes and connections are closed, and it must not raise.

    What breaks it: closing what was never opened, a summary of losses of which there are none, waiting for a thread
    that has died. Its exception would not hide the first one, which the host shows, but what was to be closed stays
    open.
    """
    teardowns.clear()
    run = run_alone(subject, [failure()])
    ends = list(teardowns)
    if run.result.status != "failed":
        raise ConformanceError(
            expected="a run whose first step fails to fail",
            got=f"one that {run.result.status}",
            fix="Let exceptions pass: they are how the host learns that a step was not made.",
        )
    if len(ends) != 1 or ends[0] is not None:
        got = subject.in_words(ends[0]) if ends and ends[0] else f"{len(ends)} calls of it"
        raise ConformanceError(
            expected="teardown to be called once, and to return",
            got=got,
            fix="Close in teardown only what is there: it is also called when the first step has failed.",
        )


@check("trainer.errors_come_out", requires=("trainer.trains",))
def errors_come_out(subject: Subject) -> None:
    """An error in the model is not swallowed.

    The kit has every module in the trainer's state raise a RuntimeError when it computes, and calls train_step. The
    error must come out.

    A train_step that catches Exception, logs it and returns turns a broken run into one that succeeds with a model
    that has learned nothing; the host can show an error, note it in result.json and restart a run only if it learns of
    it. To leave out a step on purpose, as after an overflow, return a StepResult without an update, and catch only
    what you mean.
    """

    def scene(stage: Stage) -> tuple[bool, Any]:
        from hostcore.worker.modes import modules_in

        reached: list[str] = []

        def fail(module: Any, _arguments: Any) -> None:
            reached.append(type(module).__name__)
            raise RuntimeError(OWN_WORDS)

        size = stage.training.job.accumulate
        group = tuple(stage.prepared(one) for one in stage.raw_batches(size))
        handles = [
            module.register_forward_pre_hook(fail) for model in modules_in(stage.state) for module in model.modules()
        ]
        try:
            result = stage.call("train_step", group if size > 1 else group[0], stage.state, stage.ctx)
        except Exception:  # noqa: BLE001 - the one that was raised, or what the trainer made of it
            return bool(reached), None
        finally:
            for handle in handles:
                handle.remove()
        return bool(reached), result or "None"

    reached, result = on_stage(subject, scene)
    if not reached:
        raise NotApplicable("its train_step calls no torch module that is in the state")
    if result is not None:
        raise ConformanceError(
            expected="an error in the model to come out of train_step",
            got=f"{type(result).__name__} returned instead, with the metrics {dict(getattr(result, 'metrics', {}))!r}",
            fix="Catch only the exceptions that you can do something about, and raise the others again.",
        )


def stopper(at: int) -> dict[str, Any]:
    """The entry of a job's ``callbacks`` that asks the run to stop after a step; 0: before the first."""
    return {"use": f"{__name__}:Stopper", "at": at}


def failure() -> dict[str, Any]:
    """The entry of a job's ``callbacks`` that has the first step fail."""
    return {"use": f"{__name__}:TeardownFailure"}


class _OfTeardown:
    """Sees what becomes of teardown."""

    @hookimpl(wrapper=True)
    def teardown(self) -> Generator[None, None, None]:
        """Note how it ends."""
        try:
            yield
        except BaseException as error:
            teardowns.append(error)
            raise
        teardowns.append(None)


class Stopper(_OfTeardown):
    """Asks the run to stop."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """After which step."""

        at: int = 1

    def __init__(self, *, settings: Settings) -> None:
        self._at = settings.at

    def on_train_begin(self, ctx: StepContext) -> None:
        """Before the first step."""
        if self._at == 0:
            ctx.request_stop("the conformance kit wants to see it stop")

    def on_batch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """After a step."""
        if run_state.step == self._at:
            ctx.request_stop("the conformance kit wants to see it stop")


class TeardownFailure(_OfTeardown):
    """Has the first step fail."""

    @hookimpl(wrapper=True)
    def train_step(self) -> Generator[None, Any, Any]:
        """Fail in place of it."""
        raise RuntimeError(OWN_WORDS)
        yield
