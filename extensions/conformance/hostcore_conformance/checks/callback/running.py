"""That runs with a callback go on: whole ones, stopped ones, failing ones, and those that lack something."""

from collections.abc import Mapping
from typing import Any, Final

from hostcore_conformance.check import check, has_hook
from hostcore_conformance.checks.callback.kit_callbacks import Sabotage, Witness
from hostcore_conformance.checks.callback.stage import (
    FAILURE_STEP,
    KIT,
    interrupted,
    job_of,
    perform,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.rehearsal import how_it_ended
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job

#: These two are asked by checks of their own.
_ELSEWHERE: Final = ("select_device", "on_exception")
_WITNESS: Final = f"{KIT}:Witness"
_STEPS_OF_AN_EPOCH: Final = 64
_NO_VALIDATION: Final = {"validation": None, "test": None, "validate_every": 0}
#: By variant: a run in words, and the keys of its job.
_WITHOUT: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "validation": ("a run without validation and test", _NO_VALIDATION),
    "data": ("a run without a dataset", {**_NO_VALIDATION, "dataset": None}),
    "metrics": ("a run that records no metrics", {"metric_every": 0}),
    "optimizer": ("a run whose trainer registers no optimizer", {"hyperparams": {"registers": False}}),
}


@check("callback.runs")
def runs(subject: Subject) -> None:
    """A run with it comes to its end, and so does one that is asked to stop.

    Two small runs are made by the real host: a whole one, with two epochs, validation, test, samples and checkpoints,
    and one that a component asks to stop. Both must succeed: every hook takes what the host passes it. The job is the
    kit's own (a network with dropout, an optimizer that is made known, data that is generated), or the job of the
    example, for a callback that needs a certain trainer.

    What usually breaks it: result.metrics["loss"] is a tensor and is taken for a float; metrics of a validation have
    recorded names ("val/loss"); run_state is read-only; the run directory has no folder of the callback's yet.
    """
    _called(subject)


def _called(subject: Subject) -> frozenset[str]:
    """The hooks that the host has called in the two runs."""

    def run() -> frozenset[str]:
        Witness.called.clear()
        # An author's epoch may have more than six steps; without data there are no epochs.
        has_data = not {"dataset", "mock_batches"}.isdisjoint(subject.job)
        longer: dict[str, Any] = {"epochs": 1, "max_steps": _STEPS_OF_AN_EPOCH} if has_data else {}
        perform(subject, after=(_WITNESS,), **longer).require_success("a whole run with it")
        stopped = perform(subject, after=(_WITNESS, f"{KIT}:EarlyStopper"))
        stopped.require_success("a run with it that is asked to stop after step 3")
        return frozenset(Witness.called)

    return subject.shared("callback.called", run)


@check("callback.every_hook", level="should", requires=("callback.runs",))
def every_hook(subject: Subject) -> None:
    """The example calls every hook that it implements.

    In the two runs of callback.runs, the host must have called every lifecycle hook of the callback; select_device and
    on_exception have checks of their own. What is never called is not checked. With the kit's own job all of them are.

    If the example has a job: give it validation, test and samples, and epochs of less than 64 steps. If it can do
    without a job of its own, leave that out.
    """
    called = _called(subject)
    missed = [
        hook
        for hook in subject.component().hook_names
        if hook in subject.kind.hooks and hook not in (*called, *_ELSEWHERE)
    ]
    if missed:
        raise ConformanceError(
            expected="an example job in which every hook of the callback is called",
            got=f"no call of {', '.join(missed)}",
            fix="Give the job validation, test and samples, and short epochs; or leave it out, and the kit takes its"
            " own.",
        )


@check("callback.exception_passes", requires=("callback.runs",))
def exception_passes(subject: Subject) -> None:
    """An error in the run passes through it, and its on_exception raises no other.

    A step is made to fail behind the first checkpoint. The run must end as failed, with that very error; on_exception,
    if it has one, is called, and what that raises would only be a warning in the log.

    What usually breaks it: a wrapper that catches whatever the step raises (let it pass: try/finally, or except and
    raise), and an on_exception that closes what was never opened, because the run failed before it began.
    """
    run = interrupted(subject)
    error = run.failed.result.error
    if error is None and run.failed.result.step < FAILURE_STEP:
        raise NotApplicable(f"with it the run ends at step {run.failed.result.step}, before the kit can make it fail")
    if error is None or error.type.rpartition(".")[2] != Sabotage.__name__:
        raise ConformanceError(
            expected=f"the run to fail with the error of step {FAILURE_STEP}",
            got=how_it_ended(run.failed.result),
            fix="Let errors pass through wrappers: clean up in a finally, and do not return from it.",
        )
    raised = [message for message in run.warnings if message.startswith("on_exception raised")]
    if raised:
        raise ConformanceError(
            expected="on_exception to raise nothing",
            got=raised[0],
            fix="Expect anything to be half-done there: the run has failed in the middle of something.",
        )


@check("callback.works_without", requires=("callback.runs",), variants=tuple(_WITHOUT))
def works_without(subject: Subject, variant: str) -> None:
    """It works without what a job may lack, or refuses such a job before the first step, in a sentence.

    validation: the job has no validation and no test. data: it has no dataset, and batches are None to begin with.
    metrics: metric_every is 0, so that none are recorded. optimizer: the trainer does not call
    ctx.register_optimizer, so that ctx.optimizer is None. The run must succeed, or be refused as invalid (exit code 2):
    raise InvalidSettings in on_train_begin, with the missing part.

    What usually breaks it: AttributeError on None, KeyError in a history that has no such metric, in the middle of the
    night.
    """
    job = job_of(subject)
    if subject.has_job and variant in ("optimizer", "data"):
        raise NotApplicable(f"the example job's trainer may need its {variant}")
    if variant == "validation" and not job.get("validation"):
        raise NotApplicable("the example job has no validation anyway")
    what, changes = _WITHOUT[variant]
    try:
        run = perform(subject, **{"checkpoint_every": 0, **changes})
    except HostcoreError:
        return  # refused before it began
    if run.result.status != "succeeded" and run.result.exit_code != 2:
        raise ConformanceError(
            expected=f"{what} to succeed, or to be refused before its first step",
            got=how_it_ended(run.result),
            fix='Look in on_train_begin, and raise InvalidSettings("", "…", hint="…") if it cannot do without.',
        )


@check("callback.select_device", capability=has_hook("select_device"))
def select_device(subject: Subject) -> None:
    """It chooses one of the devices that there are, or none.

    select_device is called as the host does, with a machine's devices, best first: a CPU alone, two GPUs, Apple's, for
    the local ranks 0, 1 and 7. It returns one of available, word for word, or None to leave the choice to the next. A
    device that is not there makes the job invalid.

    What usually breaks it: "cuda" in place of "cuda:0"; available[local_rank] on a machine with fewer devices.
    """
    machines = (("cpu",), ("cuda:0", "cpu"), ("cuda:0", "cuda:1", "cpu"), ("mps", "cpu"))
    choose = subject.calls()["select_device"]
    for available in machines:
        for local_rank in (0, 1, 7):
            chosen = choose(Job(), available, local_rank)
            if chosen is not None and chosen not in available:
                raise ConformanceError(
                    expected=f"one of {available}, or None, for local rank {local_rank}",
                    got=f"{chosen!r}",
                    fix="Return an element of available as it is, or None.",
                )
