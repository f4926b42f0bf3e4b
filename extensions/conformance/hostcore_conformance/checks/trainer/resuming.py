"""That a resumed run is the run that was never interrupted, though its process was killed in whatever method."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.attempts import (
    STEPS,
    attempt,
    exact_job,
    first_departure,
    first_state_departure,
    require_success,
)
from hostcore_conformance.checks.trainer.inventory import what_differs
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.rehearsal import RunRecording
from hostcore_conformance.subject import Subject

#: The steps after which the run is stopped: in its first epoch, at the end of that, in the second.
_STOPS: Final = (1, 3, 5)
_RUN_FIX: Final = (
    "See the error: it comes from going on with a checkpoint, in setup, configure, load_state_dict, load_checkpoint or"
    " the first step after them."
)


#: In which call of a method the process is killed. Checkpoints are at the steps 2, 4, 6 and 7, so steps are lost.
_CALLS: Final[Mapping[str, int]] = {
    "setup": 1,
    "configure": 1,
    "transform_batch": 5,
    "prepare_batch": 5,
    "train_step": 5,
    "validate_step": 3,
    "evaluation_metrics": 1,
    "generate_sample": 1,
    "state_dict": 3,  # the first is after the first step, and no checkpoint
    "save_checkpoint": 2,
    "load_state_dict": 1,
    "load_checkpoint": 1,
    "test_step": 1,
    "teardown": 1,
}
_LOADING: Final = ("load_state_dict", "load_checkpoint")
#: Stops the run in the middle, so that the next attempt has something to load.
_STOPPED: Final = "sigterm@step=3"
#: What the example job must have, so that a method is called.
_NEEDED: Final[Mapping[str, str]] = {
    "validate_step": "validation",
    "evaluation_metrics": "validation",
    "test_step": "test",
    "generate_sample": "samples",
}
_EVERY: Final[Mapping[str, Any]] = {"checkpoint_every": 2}
_KILLED_FIX: Final = (
    "Let a resume depend on nothing that only an orderly end leaves behind: write files under another name and rename"
    " them with os.replace, lock with fcntl.flock, and make what is missing or not whole anew."
)


@check("trainer.resume_exact", requires=("trainer.reproducible", "trainer.state_round_trips"))
def resume_exact(subject: Subject) -> None:
    """A resumed run continues as if it had never stopped.

    The kit shortens the example to epochs of three steps and runs seven steps of it with a checkpoint at each, in a
    process of its own. Then it runs the same once more, and stops the run after steps 1, 3 and 5, each time as if the
    machine were taken away: a checkpoint is written, and a new instance of the trainer resumes the run in its
    directory. All metrics of all steps must be those of the first run, bit for bit, and so must be the final state.

    The host brings back the place in the data, the random states of Python, NumPy and torch, and what state_dict
    returned. Whatever else a step depends on gets lost: an optimizer or a scheduler that is not in state_dict; a
    counter, an average or a cache on self; a generator of one's own; an iterator. Keep it in the state that configure
    returns, and put it into state_dict.
    """
    runs = subject.folder()
    job = exact_job(subject, faults=[f"sigterm@step={step}" for step in _STOPS])
    attempted = attempt(subject, job, runs=runs, attempts=len(_STOPS) + 1)
    stops = ", ".join(map(str, _STOPS))
    require_success(
        attempted, expected=f"the run to succeed after stops and resumes after the steps {stops}", fix=_RUN_FIX
    )
    _require_exact(subject, attempted.trace, _STOPS, in_new_process=False)


@check("trainer.resumes_in_new_process", requires=("trainer.resume_exact",))
def resumes_in_new_process(subject: Subject) -> None:
    """A run can be resumed by a process that knows nothing of the first.

    As trainer.resume_exact, but with one stop, after step 3, and a resume in a process that shares nothing with
    the first, not even the seed of Python's hashes (PYTHONHASHSEED).

    What passes there and fails here is kept by the process: a variable of a module, a class attribute, a cached
    function; or it follows from hashes, as the order of a set of strings does: a vocabulary made with set() numbers
    its words anew in every process. Use sorted(set(words)), and put what was built into state_dict.
    """
    runs, job = subject.folder(), exact_job(subject, faults=[_STOPPED])
    attempt(subject, job, runs=runs)
    attempted = attempt(subject, job, runs=runs, fresh=True)
    require_success(attempted, expected="the run to succeed after a resume from step 3 in a new process", fix=_RUN_FIX)
    _require_exact(subject, attempted.trace, [3], in_new_process=True)


def _require_exact(subject: Subject, trace: RunRecording, stops: Sequence[int], *, in_new_process: bool) -> None:
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


def _advice(subject: Subject, trace: RunRecording, stop: int, *, in_new_process: bool) -> str:
    """Return the most exact remedy that the differences allow."""
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


@check("trainer.killed", variants=tuple(_CALLS), requires=("trainer.resumes_in_new_process",))
def killed(subject: Subject, method: str) -> None:
    """A run survives that its process is killed in a method of the trainer.

    A process that runs the example is killed (SIGKILL, as by the out-of-memory killer) while it is inside the method:
    as soon as the method has created a file, which is empty then, or else when it is about to return. A second process
    resumes in the same run directory. It must come to the end, with the metrics and the final state of a run that
    was not killed.

    The host takes care of its own files, and of those that save_checkpoint writes into output_dir. What breaks a
    resume is what the trainer leaves elsewhere: a lock or a port that only teardown gives back; a cache that is taken
    for whole because it is there, although the process died while it was written. Write into a temporary file and
    rename it with os.replace; lock with fcntl.flock, which ends with its process.
    """
    if not subject.has(method):
        raise NotApplicable(f"it has no method {method}")
    job, runs = _job(subject, method), subject.folder()
    first = attempt(subject, job, runs=runs, attempts=2 if method in _LOADING else 1)
    if not first.ended.killed:
        if first.succeeded:
            raise NotApplicable(f"{method} is not called {_CALLS[method]} times in {STEPS} steps of its example job")
        require_success(first, expected=f"the run to come as far as call {_CALLS[method]} of {method}", fix="")
    second = attempt(subject, job, runs=runs)
    require_success(
        second, expected=f"the run to go on, and to succeed, after it was killed in {method}", fix=_KILLED_FIX
    )
    _require_survived(subject, second.trace, method)


def _job(subject: Subject, method: str) -> dict[str, Any]:
    """The job of the attempts, killed in a method: with a test or with samples where the method needs them."""
    needed = _NEEDED.get(method)
    faults = [*([_STOPPED] if method in _LOADING else ()), f"kill@{method}={_CALLS[method]}"]
    if needed is None:
        return exact_job(subject, faults=faults, **_EVERY)
    if not subject.job.get(needed):
        raise NotApplicable(f'its example job has no "{needed}", so {method} is not called', wants_example=True)
    job = exact_job(subject, needed, faults=faults, **_EVERY)
    if needed == "samples":
        job |= {"samples": job["samples"][:1], "sample_every": 5}
    return job


def _require_survived(subject: Subject, trace: RunRecording, method: str) -> None:
    """See that a run that was killed has become what it would have been.

    :raises ConformanceError: It has not.
    """
    fix = (
        f"A resume after an orderly stop is exact, so look at what {method} had begun: files outside output_dir that"
        " were half-written, or that the second process found and took for its own."
    )
    departure = first_departure(subject, trace)
    if departure is not None:
        raise ConformanceError(
            expected=f"{departure.metric} of step {departure.step} to be {departure.expected!r} in a run that was"
            f" killed in {method} and resumed",
            got=f"{departure.got!r}",
            fix=fix,
        )
    found = first_state_departure(subject, trace, STEPS)
    if found is not None:
        raise ConformanceError(
            expected=f"the final state of a run that was killed in {method} and resumed to be that of one that was not",
            got=f"another value at {found.path}: {found.expected} there, {found.got} here",
            fix=fix,
        )
