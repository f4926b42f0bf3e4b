"""Runs with the callback that is checked: on the kit's own stage, or in the job of its author."""

import copy
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_conformance.checks.callback.kit_callbacks import failing_at
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import NotApplicable
from hostcore_conformance.rehearsal import Rehearsal, rehearse
from hostcore_conformance.stage import STAGE_JOB, on_stage
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.events import Warning

STEPS: Final = 6
#: The step of a checkpoint, and that of the failure after which a run is resumed from it.
CHECKPOINT_STEP: Final = 3
FAILURE_STEP: Final = 5
KIT: Final = "hostcore_conformance.checks.callback.kit_callbacks"
SABOTEUR: Final = f"{KIT}:Saboteur"


def job_of(subject: Subject) -> dict[str, Any]:
    """The author's example job, or that of the stage."""
    return subject.job if subject.has_job else dict(STAGE_JOB)


def use_of(subject: Subject) -> dict[str, Any]:
    """The callback as it stands in a job's list."""
    return {"use": subject.qualified_name, **subject.settings}


def perform(
    subject: Subject, *before: str, after: tuple[str, ...] = (), alone: bool = False, **changes: Any
) -> Rehearsal:
    """Run six steps with validation, samples and two checkpoints, as far as the job has data for them.

    :param before: Callbacks of the kit that stand before the one that is checked.
    :param after: And those behind it.
    :param alone: Whether the one that is checked is left out.
    :param changes: Keys of the job.
    """
    job = job_of(subject)
    cadences: dict[str, Any] = {"checkpoint_every": CHECKPOINT_STEP, "max_steps": STEPS, "epochs": None}
    if job.get("validation"):
        cadences |= {"validate_every": 2, "sanity_batches": 2}
    if job.get("samples"):
        cadences["sample_every"] = 3
    own = [] if alone else [use_of(subject)]
    callbacks = [*before, *own, *after]
    return rehearse(on_stage(subject, job), **{**cadences, "callbacks": callbacks, **changes})


def with_it(subject: Subject) -> Rehearsal:
    """A whole run with the callback; made once."""
    return subject.shared("callback.with", lambda: perform(subject).require_success("a run with it"))


@attrs.frozen(kw_only=True)
class Again:
    """One more run, and what a new instance knows before and after."""

    run: Rehearsal
    #: The states of two new instances; None of a callback that keeps none.
    before: Any
    after: Any


def again(subject: Subject) -> Again:
    """The whole run once more; made once."""

    def fresh() -> Any:
        return copy.deepcopy(subject.component().instance.callback_state()) if subject.has("callback_state") else None

    def run() -> Again:
        with_it(subject)
        before = fresh()
        return Again(before=before, run=perform(subject).require_success("a second run with it"), after=fresh())

    return subject.shared("callback.again", run)


def without_it(subject: Subject) -> Rehearsal:
    """The same run without it.

    :raises NotApplicable: The job is no measure: two runs without the callback differ.
    """

    def run() -> Rehearsal:
        bare = perform(subject, alone=True).require_success("a run without any callback")
        if subject.has_job:
            again = perform(subject, alone=True)
            difference = first_unequal_metric(bare, again) or state_difference(bare, again)
            if difference:
                raise NotApplicable(
                    f"two runs of the example job without callbacks differ ({difference}): give one that is"
                    " deterministic, or none, and the kit takes its own",
                    wants_example=True,
                )
        return bare

    return subject.shared("callback.without", run)


@attrs.frozen(kw_only=True)
class Interrupted:
    """A run that failed once, and was resumed."""

    #: How its first attempt ended.
    failed: Rehearsal
    #: What that attempt warned of.
    warnings: tuple[str, ...]
    #: With its second attempt; None if the first did not fail.
    resumed: Rehearsal | None


def interrupted(subject: Subject) -> Interrupted:
    """A run that was made to fail behind its first checkpoint, and its second attempt; made once."""

    def run() -> Interrupted:
        runs = subject.folder()
        with failing_at(FAILURE_STEP):
            failed = perform(subject, after=(SABOTEUR,), runs=runs)
        warnings = tuple(event.payload.message for event in failed.events if isinstance(event.payload, Warning))
        if failed.result.status != "failed":
            return Interrupted(failed=failed, warnings=warnings, resumed=None)
        return Interrupted(failed=failed, warnings=warnings, resumed=perform(subject, after=(SABOTEUR,), runs=runs))

    return subject.shared("callback.interrupted", run)


def callback_state_of(run: Rehearsal) -> Any:
    """The state of the callback in the last checkpoint of a run; None if it keeps none."""
    states: dict[str, Any] = run.state(name="host")["callbacks"]
    return next((state for use, state in states.items() if KIT not in use), None)


def first_unequal_metric(one: Rehearsal, other: Rehearsal, *, of: Rehearsal | None = None) -> str | None:
    """The first step at which what the first run has recorded of training and validation is not so in the other.

    :param of: Only the metrics that this run has: what a callback adds may be about time.
    """
    recorded, others = one.metrics, other.metrics
    names = {name for _, name in (of.metrics if of is not None else recorded)}
    for (step, name), value in recorded.items():
        if name not in names:
            continue
        if (step, name) not in others:
            return f"{name} of step {step} is {value} and was not recorded"
        if difference := in_words(value, others[step, name], f"{name} of step {step}"):
            return difference
    return None


def state_difference(one: Rehearsal, other: Rehearsal) -> str | None:
    """Describe the first difference between the trainer's final states of two runs."""
    return in_words(one.state(), other.state())


def files_of(run: Rehearsal) -> frozenset[Path]:
    """All files of a run directory, relative to it."""
    root = run.directory.path
    return frozenset(file.relative_to(root) for file in root.rglob("*") if file.is_file())


def own_files(subject: Subject, run: Rehearsal) -> frozenset[Path]:
    """The files of a run that there would not be without the callback; of more checkpoints, the host is the writer."""
    found = files_of(run) - files_of(without_it(subject))
    return frozenset(file for file in found if file.parts[0] != "checkpoints")
