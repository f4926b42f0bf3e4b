"""Axes: where values lie, and round numbers to mark them with."""

import math
from collections.abc import Sequence

import attrs


@attrs.frozen
class Scale:
    """Maps values from ``low`` to ``high`` to a fraction of an axis."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Scale":
        """A scale on which all values have room; equal ones lie in the middle."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low == high:
            room = abs(low) * 0.05 or 1.0
            return cls(low - room, high + room)
        return cls(low, high)

    def fraction(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        # In halves, so that the distance of the largest numbers there are does not overflow.
        span = self.high / 2 - self.low / 2
        return (value / 2 - self.low / 2) / span if span else 0.5

    def ticks(self, most: int) -> list[float]:
        """Round numbers on the scale, evenly spaced: at most so many."""
        span = (self.high / 2 - self.low / 2) / most * 2
        if span < 1e-300 or not math.isfinite(span):
            return [self.low, self.high]
        power = 10.0 ** math.floor(math.log10(span))
        step = next((factor * power for factor in (1, 2, 5) if factor * power >= span), 10 * power)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)] if last - first <= most else [self.low, self.high]


def label(value: float, ticks: Sequence[float]) -> str:
    """A tick in as many digits as tell it from its neighbours."""
    distance = abs(ticks[1] - ticks[0]) if len(ticks) > 1 else abs(value)
    largest = max(abs(tick) for tick in ticks)
    if not distance or not largest or not math.isfinite(distance):
        return f"{value:.4g}"
    smallest_digit = math.floor(math.log10(distance))
    shown = 0.0 if abs(value) < distance / 1e6 else value
    if largest < 1e7 and smallest_digit > -6:
        return f"{shown:,.{max(0, -smallest_digit)}f}"
    return f"{shown:.{min(15, max(1, math.floor(math.log10(largest)) - smallest_digit + 1))}g}"
