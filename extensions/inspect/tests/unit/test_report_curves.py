"""Curves of any length in bounded memory, and the axes they are drawn on."""

import itertools
import random
from collections.abc import Iterable

import pytest

from hostcore_inspect.report.curve import MOST_POINTS, Curve
from hostcore_inspect.report.drawing import PlotMarks, Scale, draw, label


def curve_of(points: Iterable[tuple[int, float | None]], **limits: int) -> Curve:
    curve = Curve(**limits)
    for step, value in points:
        curve.add(step, value)
    return curve


class TestACurve:
    def test_that_is_longer_keeps_the_extremes_of_every_stretch(self, seed: int) -> None:
        chance = random.Random(seed)
        steps = sorted(chance.sample(range(1, 200_000), 30_000))
        points = [(step, chance.gauss(0, 1)) for step in steps]
        # Far from one another: a stretch has one highest value.
        places = [steps[number * 6_000 + chance.randrange(4_000)] for number in range(5)]
        spikes = {step: 1000.0 + number * (-1) ** number * 2000 for number, step in enumerate(places)}
        points = [(step, spikes.get(step, value)) for step, value in points]

        curve = curve_of(points)

        assert len(curve.points) <= MOST_POINTS
        assert [step for step, _ in curve.points] == sorted({step for step, _ in curve.points})
        assert set(curve.points) <= set(points)
        assert set(spikes.items()) <= set(curve.points)
        assert curve.lowest == min(points, key=lambda point: point[1])
        assert curve.highest == max(points, key=lambda point: point[1])
        assert (curve.count, curve.last) == (30_000, points[-1])

    def test_that_is_longer_has_the_means_of_its_stretches(self) -> None:
        curve = curve_of((step, float(step % 2)) for step in range(100_000))
        assert len(curve.means) <= MOST_POINTS / 2
        assert {mean for _, mean in curve.means} == {0.5}

    def test_forgets_an_undone_spike_when_it_is_long_too(self) -> None:
        curve = Curve(most_points=20)
        for step in range(1, 1001):
            curve.add(step, 99.0 if step == 900 else 1.0, attempt=1)
        for step in range(851, 1001):
            curve.add(step, 2.0, attempt=2, begun_at=850)
        assert curve.highest is not None and curve.highest[1] == 2.0
        assert {value for step, value in curve.points if step <= 850} == {1.0}


class TestAnAxis:
    @pytest.mark.parametrize(
        "values",
        [
            *([0.0, 1.0], [0.1, 0.30000000000000004], [-3.0, 7.0], [1e-9, 3e-9], [1e6, 1e6 + 1], [5.0, 5.0]),
            *([0.0, 0.0], [-1.7e308, 1.7e308], [1e300, 1e-300], [5e-324, 1e-323], [1e308, 1e308], []),
        ],
    )
    def test_has_room_for_every_value_and_a_few_round_numbers_on_it(self, values: list[float]) -> None:
        scale = Scale.over(values)
        assert all(0 <= scale.fraction(value) <= 1 for value in values)
        ticks = scale.ticks(5)
        assert 1 <= len(ticks) <= 6
        assert all(-1e-9 <= scale.fraction(tick) <= 1 + 1e-9 for tick in ticks)

    @pytest.mark.parametrize(
        ("ticks", "labels"),
        [
            ([0.0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
            ([0.1 * 3, 0.4], ["0.3", "0.4"]),
            ([4000.0, 6000.0], ["4,000", "6,000"]),
            ([1.00001, 1.00002], ["1.00001", "1.00002"]),
            ([1e-9, 2e-9], ["1e-09", "2e-09"]),
            ([1e9, 2e9], ["1e+09", "2e+09"]),
        ],
    )
    def test_labels_its_numbers_with_as_many_digits_as_tell_them_apart(
        self, ticks: list[float], labels: list[str]
    ) -> None:
        assert [label(tick, ticks) for tick in ticks] == labels


class TestLabelsOfAttempts:
    @pytest.mark.parametrize("steps", [[10, 11, 12, 13], [0, 500, 990, 1000], [500, 10, 500]])
    def test_lie_beside_one_another_within_the_plot(self, steps: list[int]) -> None:
        marks = PlotMarks(last_step=1000, checkpoints=[], attempts=list(enumerate(steps, start=2)))
        picture = draw([], marks, large=False)
        assert picture.attempts
        ends = []
        for one in picture.attempts:
            width = 6.5 * len(one.text)  # 12 px of a system's font
            left = float(one.x) - (width if one.anchor == "end" else 0)
            ends.append((left, left + width))
        assert all(end <= picture.width for _, end in ends)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ends))
