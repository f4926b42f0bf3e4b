"""The axes of pictures: where a value lies between 0 and 1, and which values are written beside."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from hostcore.cli.wording import shortened
from hostcore_inspect.report.drawing import Scale, label
from hostcore_sweeps.space import Parameter

#: Metrics above 0 whose largest is so many times the smallest are drawn on a logarithmic axis.
_LOGARITHMIC_FROM: Final = 30
_MOST_TICKS: Final = 5
#: Of an axis of choices; the others are shown by a tooltip.
_MOST_CHOICES: Final = 20
_LONGEST_CHOICE: Final = 18


@attrs.frozen(kw_only=True)
class Axis:
    """An axis."""

    #: Where a value lies: 0 at the lower end, 1 at the upper.
    fraction: Callable[[Any], float]
    #: Where, and what is written there.
    ticks: Sequence[tuple[float, str]]
    is_logarithmic: bool = False


def axis_of_parameter(parameter: Parameter) -> Axis:
    """The axis of a parameter: its whole space, as it is sampled from."""
    if parameter.choice is not None:
        return _of_choices(parameter.choice)
    low, high = parameter.range
    return _logarithmic(low, high) if parameter.kind.startswith("log") and low < high else _linear([low, high])


def axis_of_metric(values: Sequence[float]) -> Axis:
    """The axis of a metric: logarithmic where a linear one would press most values together."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return _logarithmic(low, high) if low > 0 and high / low >= _LOGARITHMIC_FROM else _linear(values)


def axis_of_numbers(last: int) -> Axis:
    """The axis of what is counted from 0: trials, steps."""
    scale = Scale(0, max(1, last))
    ticks = [tick for tick in scale.ticks(8) if tick == int(tick)]
    return Axis(fraction=scale.fraction, ticks=[(scale.fraction(tick), f"{int(tick):,}") for tick in ticks])


def _linear(values: Sequence[float]) -> Axis:
    scale = Scale.over(values)
    ticks = scale.ticks(_MOST_TICKS)
    return Axis(fraction=scale.fraction, ticks=[(scale.fraction(tick), label(tick, ticks)) for tick in ticks])


def _logarithmic(low: float, high: float) -> Axis:
    scale = Scale(math.log10(low), math.log10(high))
    first, last = math.ceil(scale.low - 1e-9), math.floor(scale.high + 1e-9)
    if last - first >= 1:
        every = (last - first) // (_MOST_TICKS + 1) + 1
        ticks = [float(power) for power in range(first, last + 1, every)]
    else:
        ticks = [scale.low, scale.high]
    return Axis(
        fraction=lambda value: scale.fraction(math.log10(value)),
        ticks=[(scale.fraction(tick), f"{10**tick:.3g}") for tick in ticks],
        is_logarithmic=True,
    )


def _of_choices(choices: Sequence[Any]) -> Axis:
    names = [in_words(choice) for choice in choices]
    places = {name: (index + 0.5) / len(names) for index, name in enumerate(names)}
    every = (len(names) - 1) // _MOST_CHOICES + 1
    shown = list(places.items())[::every]
    return Axis(
        fraction=lambda value: places[in_words(value)],
        ticks=[(place, _cut(name)) for name, place in shown],
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_CHOICE else f"{name[: _LONGEST_CHOICE - 1]}…"


def in_words(value: Any) -> str:
    """The value of a parameter: a text as it is, numbers in few digits, all else as JSON."""
    if isinstance(value, str):
        return shortened(value, 200)
    if isinstance(value, float):
        return f"{value:.6g}"
    return shortened(json.dumps(value, sort_keys=True), 200)
