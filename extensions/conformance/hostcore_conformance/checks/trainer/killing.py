"""That a run survives the death of its process, in whatever method it comes."""

from collections.abc import Mapping
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.attempts import (
    STEPS,
    Trace,
    attempt,
    copied,
    exact_job,
    require_success,
)
from hostcore_conformance.checks.trainer.comparing import first_departure, first_state_departure
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject

#: In which call of a method the process is killed. Checkpoints are at the steps 2, 4, 6 and 7, so steps are lost.
_CALLS: Final[Mapping[str, int]] = {
    "setup": 1,
    "configure": 1,
    "transform_batch": 5,
    "prepare_batch": 5,
    "train_step": 5,
    "validate_step": 3,
    "generate_sample": 1,
    "state_dict": 3,  # the first is after the first step, and no checkpoint
    "save_checkpoint": 2,
    "load_state_dict": 1,
    "load_checkpoint": 1,
    "test_step": 1,
    "teardown": 1,
}
_LOADING: Final = ("load_state_dict", "load_checkpoint")
#: What the example job must have, so that a method is called.
_NEEDED: Final[Mapping[str, str]] = {"validate_step": "validation", "test_step": "test", "generate_sample": "samples"}
_EVERY: Final[Mapping[str, Any]] = {"checkpoint_every": 2}
_FIX: Final = (
    "Let a resume depend on nothing that only an orderly end leaves behind: write files under another name and rename"
    " them with os.replace, lock with fcntl.flock, and make what is missing or not whole anew."
)


@check("trainer.killed", variants=tuple(_CALLS), requires=("trainer.resumes_in_new_process",))
def killed(subject: Subject, method: str) -> None:
    """A run survives that its process is killed in a method of the trainer.

    A process that runs the example is killed (SIGKILL, as by the out-of-memory killer) while it is inside the method:
    as soon as the method has created a file, which is empty then, or else when it is about to return. A second process
    goes on in the same run directory. It must come to the end, with the metrics and the final state of a run that
    was not killed.

    The host takes care of its own files, and of those that save_checkpoint writes into output_dir. What breaks a
    resume is what the trainer leaves elsewhere: a lock or a port that only teardown gives back; a cache that is taken
    for whole because it is there, although the process died while it was written. Write into a temporary file and
    rename it with os.replace; lock with fcntl.flock, which ends with its process.
    """
    if not subject.has(method):
        raise NotApplicable(f"it has no method {method}")
    job = _job(subject, method)
    runs = copied(subject, _stopped(subject)) if method in _LOADING else subject.folder()
    first = attempt(subject, job, runs=runs, wishes=[f"kill {method} {_CALLS[method]}"])
    if not first.ended.killed:
        if first.result is not None and first.result["status"] == "succeeded":
            raise NotApplicable(f"{method} is not called {_CALLS[method]} times in {STEPS} steps of its example job")
        require_success(first, expected=f"the run to come as far as call {_CALLS[method]} of {method}", fix="")
    second = attempt(subject, job, runs=runs)
    require_success(second, expected=f"the run to go on, and to succeed, after it was killed in {method}", fix=_FIX)
    _require_same(subject, second.trace, method)


def _job(subject: Subject, method: str) -> dict[str, Any]:
    """The job of the attempts: with a test or with samples where the method needs them."""
    needed = _NEEDED.get(method)
    if needed is None:
        return exact_job(subject, **_EVERY)
    if not subject.job.get(needed):
        raise NotApplicable(f'its example job has no "{needed}", so {method} is not called', wants_example=True)
    job = exact_job(subject, needed, **_EVERY)
    if needed == "samples":
        job |= {"samples": job["samples"][:1], "sample_every": 5}
    return job


def _stopped(subject: Subject) -> Trace:
    """A run that was stopped in the middle, to be copied."""
    return subject.shared("trainer.stopped", lambda: _make_stopped(subject))


def _make_stopped(subject: Subject) -> Trace:
    return attempt(subject, exact_job(subject, **_EVERY), runs=subject.folder(), wishes=["stop 3"]).trace


def _require_same(subject: Subject, trace: Trace, method: str) -> None:
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
