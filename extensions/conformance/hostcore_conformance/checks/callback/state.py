"""That what a callback knows survives an interruption, and belongs to it alone."""

import copy
from typing import Any

from hostcore_conformance.check import check
from hostcore_conformance.checks.callback.kit_callbacks import failing_at
from hostcore_conformance.checks.callback.stage import (
    CHECKPOINT_STEP,
    FAILURE_STEP,
    SABOTEUR,
    again,
    callback_state_of,
    first_unequal_metric,
    interrupted,
    perform,
    state_difference,
    with_it,
    without_it,
)
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject


def _keeps_state(subject: Subject) -> str | None:
    return None if subject.has("callback_state") else "it keeps no state (callback_state)"


@check("callback.state_both_ways")
def state_both_ways(subject: Subject) -> None:
    """It has both callback_state and load_callback_state, or neither.

    The host stores what callback_state returns in every checkpoint, and gives it to load_callback_state when the run
    resumes: without that, resuming fails. Without callback_state, load_callback_state is never called.
    """
    own = [name for name in subject.kind.own_methods if subject.has(name)]
    if len(own) == 1:
        other = next(name for name in subject.kind.own_methods if name not in own)
        raise ConformanceError(
            expected="both callback_state and load_callback_state, or neither",
            got=f"{own[0]} alone",
            fix=f"Write {other} as well.",
        )


@check("callback.state_round_trips", requires=("callback.runs", "callback.state_both_ways"), capability=_keeps_state)
def state_round_trips(subject: Subject) -> None:
    """Its state comes back equal after it was stored and loaded into a new instance.

    Two states are taken: that of a new instance, and that in the last checkpoint of a run. Each is loaded into a new
    instance, whose callback_state must be equal, to the bit. What the host can store: plain values, lists, tuples,
    dictionaries, arrays and tensors; no sets, no objects.

    What usually breaks it: a field that is saved and not loaded, or the other way round; a key whose name differs; a
    set, for which sorted() is the way out and set() the way back.
    """
    states = {
        "a new instance": subject.component().instance.callback_state(),
        "a run": callback_state_of(with_it(subject)),
    }
    for whose, state in states.items():
        instance: Any = subject.component().instance
        instance.load_callback_state(copy.deepcopy(state))
        difference = in_words(state, instance.callback_state(), "callback_state")
        if difference:
            raise ConformanceError(
                expected=f"callback_state to return the state of {whose} after load_callback_state",
                got=f"{difference} (before, after)",
                fix="Save and load the same fields.",
            )


@check(
    "callback.instances_independent", requires=("callback.runs", "callback.state_both_ways"), capability=_keeps_state
)
def instances_independent(subject: Subject) -> None:
    """Instances share nothing: a new one knows nothing of those before.

    The state of a new instance is compared before and after a run, and before and after a state was loaded into another
    instance. A job can use a callback twice, and notebooks make many runs in one process.

    What usually breaks it: a list or dictionary that is a default of the class or of an argument. Make it in __init__.
    """
    second = again(subject)
    bystander: Any = subject.component().instance
    other: Any = subject.component().instance
    before = copy.deepcopy(bystander.callback_state())
    other.load_callback_state(callback_state_of(with_it(subject)))
    pairs = {
        "after a run": (second.before, second.after),
        "after a state was loaded into another": (before, bystander.callback_state()),
    }
    for what, (old, new) in pairs.items():
        difference = in_words(old, new, "callback_state")
        if difference:
            raise ConformanceError(
                expected=f"a new instance to be as new {what}",
                got=f"{difference} (before, after)",
                fix="Keep what changes in self, made in __init__, not in the class or the module.",
            )


@check("callback.resume_exact", requires=("callback.exception_passes", "callback.state_both_ways"))
def resume_exact(subject: Subject) -> None:
    """A resumed run with it is the run that was never interrupted.

    A run fails behind its first checkpoint and is resumed from it in a second attempt. Losses, validations and the
    trainer's final state are compared with those of a run in one piece, bit for bit.

    What usually breaks it: a counter, a best value or a schedule that is not in callback_state, and so begins anew; or
    that is loaded and then reset in on_train_begin, which is called after the state was loaded.
    """
    run = interrupted(subject)
    if run.resumed is None:
        raise NotApplicable("with it the run ends before the kit can interrupt it")
    _require_exact_without_it(subject)
    resumed = run.resumed.require_success("a second attempt to go on from a checkpoint and")
    whole = with_it(subject)
    difference = first_unequal_metric(whole, resumed, of=without_it(subject)) or state_difference(whole, resumed)
    if difference:
        raise ConformanceError(
            expected=f"a run that failed at step {FAILURE_STEP} and went on from step {CHECKPOINT_STEP} to end as one"
            " in one piece",
            got=f"{difference} (in one piece, resumed)",
            fix="Put all that it goes by into callback_state, and do not reset it in on_train_begin.",
        )


@check("callback.state_resumes", level="should", requires=("callback.resume_exact",), capability=_keeps_state)
def state_resumes(subject: Subject) -> None:
    """Its own state ends as if there had never been an interruption.

    The state in the last checkpoint of the run that failed and was resumed is compared with that of the run in one
    piece, bit for bit. What differs between two runs in one piece, such as times, does not count. In six steps a
    counter that is off by one may not have stopped anything yet.

    What usually breaks it: on_train_begin, which every attempt calls, counts or resets something; on_checkpoint_saved,
    which comes at another moment each time, changes the state.
    """
    run = interrupted(subject)
    assert run.resumed is not None
    whole = callback_state_of(with_it(subject))
    difference = in_words(whole, callback_state_of(run.resumed), "callback_state")
    if difference is None:
        return
    by_itself = in_words(whole, callback_state_of(again(subject).run), "callback_state")
    if by_itself is None or by_itself.partition(" ")[0] != difference.partition(" ")[0]:
        raise ConformanceError(
            expected="the same callback_state at the end as in one piece",
            got=f"{difference} (in one piece, resumed)",
            fix="Change the state only in hooks that belong to a step, an epoch or a validation.",
        )


def _require_exact_without_it(subject: Subject) -> None:
    """See that the trainer of the author's job resumes exactly by itself; that of the stage does.

    :raises NotApplicable: It does not.
    """
    if not subject.has_job:
        return
    folder = subject.folder()
    with failing_at(FAILURE_STEP):
        perform(subject, after=(SABOTEUR,), alone=True, runs=folder)
    resumed = perform(subject, after=(SABOTEUR,), alone=True, runs=folder)
    whole = without_it(subject)
    difference = first_unequal_metric(whole, resumed) or state_difference(whole, resumed)
    if difference:
        raise NotApplicable(
            f"the example job's trainer does not resume exactly by itself ({difference}): give another job, or none",
            wants_example=True,
        )
