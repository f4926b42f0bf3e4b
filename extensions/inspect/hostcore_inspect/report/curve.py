"""A curve of any length in bounded memory: its lowest and highest values stay, so that no spike is lost."""

from collections.abc import Iterator
from typing import Final

import attrs

#: The most points of a curve.
MOST_POINTS: Final = 2_000

Point = tuple[int, float | None]
"""A step and its value; None where it was not finite."""


@attrs.define
class _StepRange:
    """Measurements in a stretch of consecutive steps."""

    index: int
    #: Finite values, and their sum.
    count: int
    total: float
    low_step: int
    low: float
    high_step: int
    high: float
    #: Values that were not finite, and where the first of them was.
    nonfinite: int
    nonfinite_step: int

    def take_in(self, other: "_StepRange") -> None:
        """Become the stretch that reaches to the end of a later one."""
        if other.count:
            if not self.count or other.low < self.low:
                self.low_step, self.low = other.low_step, other.low
            if not self.count or other.high > self.high:
                self.high_step, self.high = other.high_step, other.high
            self.count += other.count
            self.total += other.total
        if not self.nonfinite:
            self.nonfinite_step = other.nonfinite_step
        self.nonfinite += other.nonfinite

    def points(self) -> Iterator[Point]:
        """Its extremes, in the order of steps."""
        if not self.count:
            yield self.nonfinite_step, None
            return
        extremes = {self.low_step: self.low, self.high_step: self.high}
        yield from sorted(extremes.items())


class Curve:
    """A metric over steps. Of a step that was trained twice, the last value counts.

    Steps are kept in stretches of equal width. When there are too many stretches, neighbours become one: of each, the
    lowest and the highest value stay.

    :param most_points: How many points there may be.
    """

    def __init__(self, *, most_points: int = MOST_POINTS) -> None:
        self._most = max(1, most_points // 2)
        self._width = 1
        self._stretches: list[_StepRange] = []
        self._attempt = 0
        #: What was measured last, and at which step; None before the first.
        self.last: Point | None = None

    def add(self, step: int, value: float | None, *, attempt: int = 1, begun_at: int = 0) -> None:
        """Take in the next value.

        :param value: None if it is not finite.
        :param begun_at: Finished steps when the attempt began: what was measured of later steps by an earlier attempt
            has been undone.
        """
        if attempt != self._attempt:
            self._rewind(begun_at)
            self._attempt = attempt
        elif self.last is not None and step <= self.last[0]:
            self._rewind(step - 1)
        self.last = (step, value)
        index, stretches = step // self._width, self._stretches
        if value is None:
            new = _StepRange(index, 0, 0.0, 0, 0.0, 0, 0.0, 1, step)
        else:
            if stretches and (stretch := stretches[-1]).index == index and stretch.count:
                stretch.count += 1
                stretch.total += value
                if value < stretch.low:
                    stretch.low_step, stretch.low = step, value
                if value > stretch.high:
                    stretch.high_step, stretch.high = step, value
                return
            new = _StepRange(index, 1, value, step, value, step, value, 0, 0)
        if stretches and stretches[-1].index == index:
            stretches[-1].take_in(new)
        else:
            stretches.append(new)
            if len(stretches) > self._most:
                self.thin(self._most * 2)

    def thin(self, most_points: int) -> None:
        """Get along with fewer points, for good."""
        self._most = max(1, most_points // 2)
        while len(self._stretches) > self._most:
            self._width *= 2
            merged: list[_StepRange] = []
            for stretch in self._stretches:
                stretch.index //= 2
                if merged and merged[-1].index == stretch.index:
                    merged[-1].take_in(stretch)
                else:
                    merged.append(stretch)
            self._stretches = merged

    def _rewind(self, step: int) -> None:
        """Forget what was measured behind a step; of a stretch that lies across it, keep the extremes before it."""
        while self._stretches and self._stretches[-1].index * self._width > step:
            self._stretches.pop()
        if not self._stretches or (self._stretches[-1].index + 1) * self._width <= step + 1:
            return
        across = self._stretches.pop()
        kept = [(at, value) for at, value in across.points() if at <= step]
        for at, value in kept:
            one = _StepRange(across.index, 0, 0.0, 0, 0.0, 0, 0.0, 1, at)
            if value is not None:
                one = _StepRange(across.index, 1, value, at, value, at, value, 0, 0)
            if self._stretches and self._stretches[-1].index == across.index:
                self._stretches[-1].take_in(one)
            else:
                self._stretches.append(one)

    @property
    def points(self) -> list[Point]:
        """At most ``most_points``, in the order of steps. None stands where nothing was finite."""
        return [point for stretch in self._stretches for point in stretch.points()]

    @property
    def means(self) -> list[tuple[int, float]]:
        """The mean of each stretch, at its middle; empty if every value is among the points."""
        if all(stretch.count <= 2 for stretch in self._stretches):
            return []
        return [
            ((stretch.low_step + stretch.high_step) // 2, stretch.total / stretch.count)
            for stretch in self._stretches
            if stretch.count
        ]

    @property
    def nonfinite_steps(self) -> list[int]:
        """First step of each stretch with values that were not finite."""
        return [stretch.nonfinite_step for stretch in self._stretches if stretch.nonfinite]

    @property
    def count(self) -> int:
        """Values that were measured, finite or not."""
        return sum(stretch.count + stretch.nonfinite for stretch in self._stretches)

    @property
    def nonfinite(self) -> int:
        """Values that were not finite."""
        return sum(stretch.nonfinite for stretch in self._stretches)

    @property
    def lowest(self) -> tuple[int, float] | None:
        """The step and value of the lowest; None if none was finite."""
        found = [stretch for stretch in self._stretches if stretch.count]
        best = min(found, key=lambda one: one.low, default=None)
        return None if best is None else (best.low_step, best.low)

    @property
    def highest(self) -> tuple[int, float] | None:
        """The step and value of the highest; None if none was finite."""
        found = [stretch for stretch in self._stretches if stretch.count]
        best = max(found, key=lambda one: one.high, default=None)
        return None if best is None else (best.high_step, best.high)
