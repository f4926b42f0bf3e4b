"""The steps of a run: how far it came, and the metrics that it recorded."""

from collections.abc import Mapping

import orjson

from hostcore.events.reader import LONGEST_RECORD, GrowingLog, name_of
from hostcore.runs.directory import RunDirectory
from hostcore.runs.summary import summarize
from hostcore_hookspecs import HostcoreError

#: By metric.
StepMetrics = Mapping[str, float | None]


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


def recorded_metrics(directory: RunDirectory) -> dict[int, tuple[int, StepMetrics]]:
    """Return, by step, the attempt that recorded metrics last, and the metrics."""
    found: dict[int, tuple[int, StepMetrics]] = {}
    if directory.events.exists():
        for line in GrowingLog(directory.events).records(longest=LONGEST_RECORD):
            if name_of(line) == "metrics":
                event = orjson.loads(line)
                found[event["step"]] = event["attempt"], event["metrics"]
    return found
