"""Checks of a callback's remains: files where they belong, written by one rank, and nothing open."""

from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.callback.kit_callbacks import failing_at
from hostcore_conformance.checks.callback.stage import (
    FAILURE_STEP,
    KIT,
    SABOTEUR,
    files_of,
    own_files,
    perform,
    with_it,
    without_it,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.process.resources import held
from hostcore_conformance.rehearsal import how_it_ended
from hostcore_conformance.subject import Subject

#: Fonts: the host draws the loss curve in a thread of its own, and matplotlib keeps them open for each thread.
_KEPT_BY_THE_HOST: Final = "/mpl-data/"


@check("callback.own_folder", level="should", requires=("callback.runs",))
def own_folder(subject: Subject) -> None:
    """Its files lie in a folder of its own in the run directory.

    The files of a run with it and of one without are compared. What it has written into the run directory must lie in
    folders that the host does not use: runs/<run_id>/<name of the callback>/. Every file of the host has one writer,
    and what lies beside those may be taken for one of them, or be in the way of a later version.

    Write into pathlib.Path(ctx.run_dir, "my-callback"), and make it first.
    """
    hosts = {file.parts[0] for file in files_of(without_it(subject))}
    for file in sorted(own_files(subject, with_it(subject))):
        if len(file.parts) == 1 or file.parts[0] in hosts:
            raise ConformanceError(
                expected="its files in a folder of its own in the run directory",
                got=f"{file}",
                fix=f'Write it to pathlib.Path(ctx.run_dir, "{subject.name.rpartition(":")[2]}").',
            )


@check("callback.one_writer", level="should", requires=("callback.runs",))
def one_writer(subject: Subject) -> None:
    """Two ranks never write the same file.

    A run is made in which ctx.rank is 1; what is written must have other names than in a run of rank 0. All
    ranks share the run directory, and each has its own instance of the callback: two that write one file mix their
    lines, or remove what the other has just written.

    Write when ctx.rank == 0, or put the rank into the name: rank-1.json.
    """
    own = own_files(subject, with_it(subject))
    if not own:
        raise NotApplicable("it writes no files in the run directory")
    run = perform(subject, f"{KIT}:OtherRank")
    if run.result.status != "succeeded":
        raise NotApplicable(f"another rank cannot be played to it in one process: {how_it_ended(run.result)}")
    both = sorted(own & own_files(subject, run))
    if both:
        raise ConformanceError(
            expected="rank 1 to write other files than rank 0, or none",
            got=f"{', '.join(map(str, both[:5]))} by both",
            fix="Write when ctx.rank == 0, or put ctx.rank into the name of the file.",
        )


@check("callback.leaves_nothing_open", requires=("callback.exception_passes",))
def leaves_nothing_open(subject: Subject) -> None:
    """Threads and files that it opens are closed when a run is over, however it ends.

    The threads and the open files of the process are counted before and after a whole run, and one that is made to
    fail. What there is more is counted again after one more such run: what a library opens once and for all is no leak.

    Close in on_train_end and in on_exception: a run calls one or the other. A thread needs an end too: set an event and
    join it.
    """
    endings = {"a whole run": 0, "a run that failed": FAILURE_STEP}
    for what, step in endings.items():
        for attempt in range(2):
            before = held()
            with failing_at(step):
                perform(subject, after=(SABOTEUR,))
            left = [one for one in held().leaks(before) if _KEPT_BY_THE_HOST not in one]
            if not left:
                break
            if attempt:
                hook = "on_exception" if step else "on_train_end"
                raise ConformanceError(
                    expected=f"nothing left open after {what}",
                    got=", ".join(left[:5]),
                    fix=f"Close it in {hook}.",
                )
