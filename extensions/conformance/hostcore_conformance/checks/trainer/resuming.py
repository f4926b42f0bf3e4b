"""That a resumed run is the run that was never interrupted."""

from collections.abc import Sequence
from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.attempts import (
    STEPS,
    Trace,
    attempt,
    exact_job,
    require_success,
)
from hostcore_conformance.checks.trainer.comparing import first_departure, first_state_departure
from hostcore_conformance.checks.trainer.inventory import what_differs
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

#: The steps after which the run is stopped: in its first epoch, at the end of that, in the second.
_STOPS: Final = (1, 3, 5)
_RUN_FIX: Final = (
    "See the error: it comes from going on with a checkpoint, in setup, configure, load_state_dict, load_checkpoint or"
    " the first step after them."
)


@check("trainer.resume_exact", requires=("trainer.reproducible", "trainer.state_round_trips"))
def resume_exact(subject: Subject) -> None:
    """A resumed run goes on as if it had never stopped.

    The kit shortens the example to epochs of three steps and runs seven steps of it with a checkpoint at each, in a
    process of its own. Then it runs the same once more, and stops the run after steps 1, 3 and 5, each time as if the
    machine were taken away: a checkpoint is written, and a new instance of the trainer goes on in the same run
    directory. All metrics of all steps must be those of the first run, bit for bit, and so must be the final state.

    The host brings back the place in the data, the random states of Python, NumPy and torch, and what state_dict
    returned. Whatever else a step depends on gets lost: an optimizer or a scheduler that is not in state_dict; a
    counter, an average or a cache on self; a generator of one's own; an iterator. Keep it in the state that configure
    returns, and put it into state_dict.
    """
    runs = subject.folder()
    wishes = (*(f"stop {step}" for step in _STOPS), "")
    attempted = attempt(subject, exact_job(subject), runs=runs, wishes=wishes)
    stops = ", ".join(map(str, _STOPS))
    require_success(
        attempted, expected=f"the run to succeed after stops and resumes after the steps {stops}", fix=_RUN_FIX
    )
    _require_exact(subject, attempted.trace, _STOPS, in_new_process=False)


@check("trainer.resumes_in_new_process", requires=("trainer.resume_exact",))
def resumes_in_new_process(subject: Subject) -> None:
    """A run can be resumed by a process that knows nothing of the first.

    As trainer.resume_exact, but with one stop, after step 3, and a resume in a new interpreter with another seed of
    Python's hashes (PYTHONHASHSEED).

    What passes there and fails here is kept by the process: a variable of a module, a class attribute, a cached
    function; or it follows from hashes, as the order of a set of strings does: a vocabulary made with set() numbers
    its words anew in every process. Use sorted(set(words)), and put what was built into state_dict.
    """
    runs, job = subject.folder(), exact_job(subject)
    attempt(subject, job, runs=runs, wishes=["stop 3"])
    attempted = attempt(subject, job, runs=runs, fresh=True)
    require_success(attempted, expected="the run to succeed after a resume from step 3 in a new process", fix=_RUN_FIX)
    _require_exact(subject, attempted.trace, [3], in_new_process=True)


def _require_exact(subject: Subject, trace: Trace, stops: Sequence[int], *, in_new_process: bool) -> None:
    """See that an interrupted run is the same as the other.

    :param stops: The steps after which it was interrupted.
    :raises ConformanceError: It is not.
    """
    departure = first_departure(subject, trace)
    if departure is not None:
        stop = max((step for step in stops if step < departure.step), default=0)
        raise ConformanceError(
            expected=f"{departure.metric} of step {departure.step} to be {departure.expected!r} again after a resume"
            f" from step {stop}{' in a new process' if in_new_process else ''}",
            got=f"{departure.got!r}",
            fix=_advice(subject, trace, stop, in_new_process=in_new_process),
        )
    for step in (*stops, STEPS):
        found = first_state_departure(subject, trace, step)
        if found is not None:
            raise ConformanceError(
                expected=f"the state after step {step} to be that of the run that was not interrupted",
                got=f"another value at {found.path}: {found.expected} there, {found.got} here; all metrics agree",
                fix="Put into state_dict what this value is computed from.",
            )


def _advice(subject: Subject, trace: Trace, stop: int, *, in_new_process: bool) -> str:
    """What to do about it: as exact as can be said."""
    before = first_state_departure(subject, trace, stop)
    if before is not None:
        values = f"{before.expected} without the stop, {before.got} with it"
        return f"The states differ already at step {stop}, at {before.path}: {values}."
    if in_new_process:
        return (
            "The states are equal after loading, and a resume in the same process is exact: so something that the"
            " process keeps differs: a variable of a module, a class attribute, a cache, the order of a set. Put it"
            " into state_dict, or make it from the job alone (sorted(set(words)))."
        )
    named = what_differs(subject, stop)
    return (
        "All that state_dict returns is as it was after loading,"
        f" but other things differ: {named}. Put what they consist of into state_dict."
        if named
        else "The states are equal after loading, so something outside the state differs: an attribute of the trainer,"
        " a cache, an iterator, a generator of its own. Put it into state_dict."
    )
