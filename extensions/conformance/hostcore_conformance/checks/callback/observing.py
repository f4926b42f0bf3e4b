"""That a callback which only looks on leaves the training as it is, and that what one changes is always the same."""

from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.callback.stage import (
    again,
    first_unequal_metric,
    state_difference,
    with_it,
    without_it,
)
from hostcore_conformance.differences import in_words
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

#: Declaration of a callback that changes training on purpose: a class or instance attribute.
DECLARATION: Final = "CHANGES_TRAINING"
_GENERATORS: Final = {"python": "random", "numpy": "numpy.random", "torch": "torch", "cuda": "torch.cuda"}


def _only_observes(subject: Subject) -> str | None:
    declared = getattr(subject.component().instance, DECLARATION, False)
    return f"it says that it changes training ({DECLARATION} = True)" if declared else None


@check("callback.random_untouched", requires=("callback.runs",), capability=_only_observes)
def random_untouched(subject: Subject) -> None:
    """It draws nothing from the global random generators.

    Two runs are made, with the callback and without; at the end, the generators of Python, NumPy and torch must be in
    the same state. Dropout, augmentation and whatever else is random in a trainer draw from them: a single number that
    a callback takes makes it another training, with other losses.

    Draw from a generator of your own: random.Random(seed), numpy.random.default_rng(seed), torch.Generator(). Watch for
    libraries that draw: torch.randperm, shuffles, DataLoader. A callback that changes training on purpose declares it
    with the class attribute CHANGES_TRAINING = True, and is not checked.
    """
    states: list[Any] = [run(subject).state(name="rank-0")["random"] for run in (without_it, with_it)]
    for name, generator in _GENERATORS.items():
        if name in states[0] and in_words(states[0][name], states[1].get(name)):
            raise ConformanceError(
                expected=f"the global generator of {generator} to be where it is without the callback",
                got="another state after six steps",
                fix="Draw from a generator of your own, such as random.Random(0) or torch.Generator().",
            )


@check("callback.observes", requires=("callback.runs", "callback.random_untouched"), capability=_only_observes)
def observes(subject: Subject) -> None:
    """It changes nothing in the training.

    Two runs are made, with the callback and without. All that the run without it records (losses, validations, the
    test) and the trainer's final state, model and optimizer, must be equal, to the bit. A user who adds a monitor to a
    job wants to see the same training.

    What usually breaks it: numbers drawn at random, tensors in a result or a batch that are changed in place,
    gradients or modes (model.train, requires_grad) that are left otherwise, a metric that is replaced under its own
    name. A callback whose purpose it is to change training (clipping, stopping, freezing, averaging) declares that with
    the class attribute CHANGES_TRAINING = True.
    """
    bare, run = without_it(subject), with_it(subject)
    difference = first_unequal_metric(bare, run) or state_difference(bare, run)
    if difference:
        raise ConformanceError(
            expected="the same training with the callback and without",
            got=f"{difference} (without, with)",
            fix=f"Leave results, batches and gradients as they are; or declare {DECLARATION} = True in the class, if it"
            " changes training on purpose.",
        )


@check("callback.repeatable", requires=("callback.runs",))
def repeatable(subject: Subject) -> None:
    """Two runs with it are the same training.

    The same job is run twice. Losses, validations and the trainer's final state must be equal, to the bit. What a
    callback changes must follow from the job, its seed and what it has seen, or no run can be made again.

    What usually breaks it: decisions by the clock; a random generator without a seed; what an earlier run
    left in a module.
    """
    run, second = with_it(subject), again(subject).run
    difference = first_unequal_metric(run, second, of=without_it(subject)) or state_difference(run, second)
    if difference:
        raise ConformanceError(
            expected="two runs of one job to be the same training",
            got=f"{difference} (first, second)",
            fix="Seed its generators from ctx.job.seed, and do not decide by the time.",
        )
