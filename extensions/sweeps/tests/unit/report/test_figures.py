"""The pictures of a sweep: what is drawn, where, and what is told of importance."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest
import recorded_sweep

from hostcore_sweeps.report.axes import axis_of_metric, axis_of_parameter
from hostcore_sweeps.report.figures import MOST_DRAWN, Looks, SweepFigure, curves, history, parallel, trade_offs
from hostcore_sweeps.report.importance import importance
from hostcore_sweeps.space import Parameter
from hostcore_sweeps.status import SweepStatus, read_status

TWO = [{"metric": "val/loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}]


@pytest.fixture
def status_of(tmp_path: Path) -> Any:
    """``status_of(pasts, **keys)``: the status of a sweep that went so."""

    def read(pasts: Any, **keys: Any) -> SweepStatus:
        return read_status(recorded_sweep.record(tmp_path, pasts, **keys))

    return read


def looks_of(figure: SweepFigure) -> dict[int, str]:
    """The classes of the mark of each trial."""
    return {mark.trial: mark.look for mark in figure.marks if mark.trial is not None and "bridge" not in mark.look}


def points_of(figure: SweepFigure, trial: int) -> list[tuple[float, float]]:
    """Where the mark of a trial goes through."""
    d = next(mark.d for mark in figure.marks if mark.trial == trial)
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", d)]


def test_the_history_falls_with_the_best_so_far_and_marks_what_is_no_value(status_of: Any) -> None:
    past = recorded_sweep.Past
    lr = "/hyperparams/learning_rate"
    status = status_of(
        [
            past(values={lr: 0.1}, objective={"val/loss": 4.0}),
            past(values={lr: 0.2}, objective={"val/loss": 1.0}),
            past(values={lr: 0.3}, objective={"val/loss": 3.0}),
            past(values={lr: 0.4}, state="pruned", reports={5: {"val/loss": 9.0}}, objective={"val/loss": 9.0}),
            past(values={lr: 0.5}, state="failed", reason="it broke"),
        ]
    )
    drawn = history(status, Looks.of(status))
    assert drawn is not None
    assert looks_of(drawn) == {
        0: "dot complete q8",
        1: "dot complete q0 best",
        2: "dot complete q4",
        3: "dot pruned",
        4: "cross failed",
    }
    heights = [points_of(drawn, trial)[0][1] for trial in range(4)]
    assert heights[1] > heights[2] > heights[0] > heights[3]  # more is higher, and y grows downwards
    stairs = next(mark.d for mark in drawn.marks if mark.look == "sofar")
    assert stairs.count("V") == 1  # trial 2 was no better than trial 1
    assert drawn.description == "5 trials. The best so far was 4 at trial 0, 1 at trial 1."
    assert "it broke" not in str(drawn.labels)


def test_more_is_better_where_the_objective_says_so(status_of: Any) -> None:
    values = {"/hyperparams/learning_rate": 0.1}
    pasts = [recorded_sweep.Past(values=values, objective={"accuracy": value}) for value in (0.5, 0.9, 0.7)]
    status = status_of(pasts, objective=TWO[1])
    drawn = history(status, Looks.of(status))
    assert drawn is not None
    assert looks_of(drawn)[1] == "dot complete q0 best"
    assert "0.5 at trial 0, 0.9 at trial 1" in drawn.description


def test_a_line_passes_each_axis_at_its_value_and_bridges_those_it_has_none_on(status_of: Any) -> None:
    names = ["/hyperparams/learning_rate", "/hyperparams/layers", "/hyperparams/optimizer", "/hyperparams/momentum"]
    pasts = [
        recorded_sweep.Past(values=dict(zip(names, (1.0, 6, "sgd", 0.99), strict=True)), objective={"val/loss": 2.0}),
        recorded_sweep.Past(values=dict(zip(names, (1e-4, 1, "muon"), strict=False)), objective={"val/loss": 1.0}),
    ]
    status = status_of(pasts)
    drawn = parallel(status, Looks.of(status))
    assert drawn is not None
    top, bottom = 44.0, 302.0
    whole = points_of(drawn, 0)
    assert [y for _, y in whole[:2]] == [top, top]  # both at the upper end of their axes
    assert whole[-1][1] == top
    assert len({x for x, _ in whole}) == 5
    assert [y for _, y in points_of(drawn, 1)[:2]] == [bottom, bottom]
    bridges = [mark for mark in drawn.marks if "bridge" in mark.look]
    assert [mark.trial for mark in bridges] == [1]  # from the optimizer to the objective, past the momentum
    assert [label.text for label in drawn.labels].count("logarithmic") == 1
    assert {"sgd", "adam", "muon"} <= {label.text for label in drawn.labels}


def test_objectives_that_are_traded_are_drawn_against_each_other(status_of: Any) -> None:
    pairs = [(1.0, 0.5), (2.0, 0.9), (3.0, 0.8)]
    values = {"/hyperparams/learning_rate": 0.1}
    pasts = [recorded_sweep.Past(values=values, objective={"val/loss": x, "accuracy": y}) for x, y in pairs]
    status = status_of(pasts, objective=TWO)
    (drawn,) = trade_offs(status, Looks.of(status))
    assert looks_of(drawn) == {0: "dot front", 1: "dot front", 2: "dot other"}
    assert "1 and 0.5; 2 and 0.9" in drawn.description


def test_curves_end_where_a_trial_was_pruned(status_of: Any) -> None:
    values = {"/hyperparams/learning_rate": 0.1}
    falling = {step: {"val/loss": 10.0 - step} for step in range(1, 6)}
    pasts = [
        recorded_sweep.Past(values=values, reports=falling, objective={"val/loss": 5.0}),
        recorded_sweep.Past(values=values, state="pruned", reports={1: {"val/loss": 9.5}, 2: {"val/loss": None}}),
    ]
    status = status_of(pasts)
    (drawn,) = curves(status, Looks.of(status))
    assert (len(points_of(drawn, 0)), len(points_of(drawn, 1))) == (5, 1)
    assert drawn.description == "2 curves, up to step 5, from 5 to 9.5."


def test_of_very_many_trials_the_best_and_the_newest_are_drawn(status_of: Any) -> None:
    count = MOST_DRAWN + 300
    values = {"/hyperparams/learning_rate": 0.1}
    pasts = [recorded_sweep.Past(values=values, objective={"val/loss": 1.0 + number}) for number in range(count)]
    status = status_of(pasts, limits={"trials": count})
    drawn = history(status, Looks.of(status))
    assert drawn is not None
    assert len(looks_of(drawn)) == MOST_DRAWN
    assert {0, 1, count - 1} <= set(looks_of(drawn))


@pytest.mark.parametrize(
    ("keys", "value", "fraction"),
    [
        ({"uniform": [0, 10]}, 2.5, 0.25),
        ({"log_uniform": [1e-4, 1]}, 1e-2, 0.5),
        ({"integer": [1, 5]}, 5, 1.0),
        ({"choice": ["a", {"b": [1]}]}, {"b": [1]}, 0.75),
        ({"choice": [True, 1]}, 1, 0.75),
        ({"uniform": [3, 3]}, 3, 0.5),
    ],
)
def test_an_axis_has_every_value_of_its_parameter(keys: Any, value: Any, fraction: float) -> None:
    axis = axis_of_parameter(Parameter(**keys))
    assert axis.fraction(value) == pytest.approx(fraction)
    assert all(0 <= place <= 1 for place, _ in axis.ticks)


def test_an_axis_of_a_metric_is_logarithmic_where_a_linear_one_tells_little() -> None:
    assert axis_of_metric([0.01, 5.0]).is_logarithmic
    assert not axis_of_metric([-1.0, 50.0]).is_logarithmic
    assert [text for _, text in axis_of_metric([0.001, 100.0]).ticks] == ["0.001", "0.01", "0.1", "1", "10", "100"]


def test_the_parameter_that_decides_is_the_most_important_one(status_of: Any) -> None:
    status = status_of(recorded_sweep.whole_sweep())
    found = importance(status, status.objectives[0])
    assert next(iter(found.shares)) == "/hyperparams/learning_rate"
    assert sum(found.shares.values()) == pytest.approx(1)
    assert (found.best, found.complete) == (5, 16)


def test_importance_is_not_guessed_from_few_trials_or_one_parameter(status_of: Any) -> None:
    few = status_of(recorded_sweep.whole_sweep()[:8])
    assert importance(few, few.objectives[0]).why_not == "10 complete trials are needed, and there are 7."
    pasts = [
        attrs.evolve(past, values={"/hyperparams/learning_rate": 0.001 * (number + 1)})
        for number, past in enumerate(one for one in recorded_sweep.whole_sweep() if one.state == "complete")
    ]
    alone = status_of(pasts, sweep_id="alone")
    assert "Only one parameter varies" in (importance(alone, alone.objectives[0]).why_not or "")
