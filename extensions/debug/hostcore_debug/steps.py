"""The steps of a run, as command lines name them."""

from hostcore.runs.directory import RunDirectory
from hostcore.runs.summary import summarize
from hostcore_hookspecs import HostcoreError


def last_step(directory: RunDirectory) -> int:
    """Return the last step that a run has finished, in any attempt."""
    return summarize(directory).step


def step_number(text: str, directory: RunDirectory) -> int:
    """Return the step that a command line names: a number, or ``last``.

    ``last`` of a failed run is the step that failed, behind those that it finished.

    :raises HostcoreError: It is no step of the run.
    """
    summary = summarize(directory)
    most = summary.step + (summary.status == "failed")
    if text == "last":
        number = most
    elif text.isdecimal() and text.isascii():
        number = int(text)
    else:
        raise HostcoreError(f"{text!r} is no step", hint="give a number, from 1, or 'last'")
    if not 1 <= number <= most:
        raise HostcoreError(
            f"the run {directory.run_id!r} has no step {number:,}: it has finished {summary.step:,}",
            hint="steps are counted from 1" if not number else None,
        )
    return number
