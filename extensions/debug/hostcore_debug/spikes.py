"""Steps whose loss stands out, and the rows that make it."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import attrs

from hostcore.runs.recorded import RecordedStep

#: Values that the median is of: those recorded before a step, the newest of them.
_WINDOW: Final = 50
#: With fewer, there is no median.
_FEWEST: Final = 5


@attrs.frozen(kw_only=True)
class Spike:
    """A step whose metric is above a multiple of the running median."""

    step: int
    value: float | None
    #: Of the values recorded before it.
    median: float

    @property
    def times(self) -> float:
        """The value as a multiple of the median; infinite for a value that is not finite."""
        return float("inf") if self.value is None else self.value / self.median if self.median else float("inf")


def spikes(recorded: Mapping[int, RecordedStep], metric: str, factor: float) -> list[Spike]:
    """Return the steps at which a metric is above ``factor`` times the median of the 50 values before, worst first.

    A value that is not finite is the worst. Spikes are not counted in later medians.
    """
    found = []
    before: deque[float] = deque(maxlen=_WINDOW)
    for step in sorted(recorded):
        values = recorded[step].metrics
        if metric not in values:
            continue
        value = values[metric]
        middle = median(before) if len(before) >= _FEWEST else None
        if middle is not None and (value is None or value > factor * middle > 0):
            found.append(Spike(step=step, value=value, median=middle))
        elif value is not None:
            before.append(value)
    return sorted(found, key=lambda one: (-one.times, one.step))


def guilty(rows: Sequence[int], spikes_without: Callable[[Sequence[int]], bool]) -> tuple[list[int], int]:
    """Return the fewest rows found that make a spike, and the number of trials.

    Halves the rows as long as one half alone makes the spike; where neither does, both are needed. Where the first half
    does not, the second is taken for the one that does, which a later trial has to confirm.

    :param rows: Of the step.
    :param spikes_without: Returns whether the step still spikes without some of its rows.
    """
    trials = 0

    def spikes_with(some: Sequence[int]) -> bool:
        nonlocal trials
        trials += 1
        return spikes_without([one for one in rows if one not in some])

    confirmed = list(rows)
    while len(confirmed) > 1:
        first, second = _halves(confirmed)
        if spikes_with(first):
            confirmed = first
        elif not spikes_with(second):
            break
        else:
            confirmed = second
            suspects = confirmed
            while len(suspects) > 1:
                first, second = _halves(suspects)
                suspects = first if spikes_with(first) else second
                confirmed = suspects if suspects is first else confirmed
            if suspects is confirmed or spikes_with(suspects):
                return suspects, trials
    return confirmed, trials


def _halves(rows: list[int]) -> tuple[list[int], list[int]]:
    return rows[: len(rows) // 2], rows[len(rows) // 2 :]


def replacements(without: Sequence[int], rows: Sequence[int]) -> Iterator[int]:
    """Yield, for each row that is left out, its number and that of the row of the step that takes its place.

    Of half of the rows left out, the others come twice each, so that the mean over the batch is that of the others.
    """
    left = [one for one in rows if one not in set(without)]
    for place, one in enumerate(without):
        yield from (one, left[place % len(left)])
