"""Replays of one step with other rows, until those that make its spike remain."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hostcore.runs.directory import RunDirectory
from hostcore_debug.replay import ReplayRequest, replay
from hostcore_debug.run_rows import RunRows
from hostcore_debug.spikes import guilty, replacements
from hostcore_hookspecs import HostcoreError


def bisect_rows(
    directory: RunDirectory, rows: RunRows, step: int, *, metric: str, threshold: float
) -> tuple[list[int], int]:
    """Return the rows that make a step's spike, by number, and the number of replays that it took.

    The steps before are replayed once; each trial is the step alone, from the checkpoint that this leaves.

    :param threshold: The metric is a spike above it.
    :raises HostcoreError: The replay of the step as it was is no spike.
    """
    numbers = rows.numbers(step).tolist()
    with tempfile.TemporaryDirectory(prefix="hostcore-debug-") as folder:
        before = directory
        if step > 1:
            scratch = Path(folder, "before")
            scratch.mkdir()
            request = ReplayRequest(step=step - 1, until=step - 1, measures=False, keeps=True)
            before = replay(directory, request, scratch).directory
        count = 0

        def spikes_without(without: Sequence[int]) -> bool:
            nonlocal count
            count += 1
            scratch = Path(folder, f"trial-{count}")
            scratch.mkdir()
            replaced = list(replacements(without, numbers))
            found = replay(before, ReplayRequest(step=step, until=step, without=replaced, measures=False), scratch)
            value = found.metrics.get(step, {}).get(metric)
            return value is None or value > threshold

        if not spikes_without(()):
            raise HostcoreError(
                f"the replay of step {step:,} is no spike: {metric} is not above {threshold:.4g}",
                hint=f"`hostcore debug RUN --step {step}` says whether the replay equals the run",
            )
        found, trials = guilty(numbers, spikes_without)
        return found, trials
