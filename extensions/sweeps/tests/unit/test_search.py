"""Decisions depend on the seed, on numbers and on values: not on when anything happened, nor on who was killed."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from hostcore_sweeps.records import TrialEnded
from hostcore_sweeps.search import TrialSearch
from hostcore_sweeps.spec import Sweep, load_sweep
from hostcore_sweeps.trials import Trial

STEPS = 30
ASHA = {"pruner": {"use": "asha", "min_steps": 3}}
HYPERBAND = {"pruner": {"use": "hyperband", "min_steps": 2, "max_steps": STEPS}}
PBT = {"sampler": {"use": "pbt", "population": 4, "interval_steps": 5}}
SEARCHES = [
    {},
    {"sampler": "random"},
    {"sampler": "cmaes"},
    ASHA,
    HYPERBAND,
    {"pruner": "median"},
    {"sampler": "random", **ASHA},
    PBT,
]


def sweep_of(**keys: Any) -> Sweep:
    return load_sweep(
        {
            "job": {"trainer": "tiny", "max_steps": 3},
            "space": {
                "/hyperparams/x": {"uniform": [-3, 3]},
                "/hyperparams/kind": {"choice": ["a", {"b": 1}]},
                "/hyperparams/m": {"uniform": [0, 1], "when": {"/hyperparams/kind": "a"}},
            },
            "objective": {"metric": "val/loss", "mode": "min"},
            "limits": {"trials": 20},
            **keys,
        }
    )


class Simulation:
    """A sweep whose trials come forward in a random order, and whose driver may be another one at any time."""

    def __init__(self, sweep: Sweep, *, order: int, restarts: float = 0.0, failing: bool = False) -> None:
        self._sweep = sweep
        self._failing = failing
        self._random = random.Random(order)
        self._restarts = restarts
        self._search = TrialSearch(sweep, parallel=3)
        self._trials: list[Trial] = []

    def run(self) -> list[tuple[Any, TrialEnded]]:
        while len(self._trials) < self._sweep.most_trials or any(trial.ended is None for trial in self._trials):
            if self._random.random() < self._restarts:
                self._search = TrialSearch(self._sweep, parallel=3)
            self._sample()
            self._report()
            self._settle()
        return [((trial.values, trial.parent), trial.ended) for trial in self._trials if trial.ended]

    def _sample(self) -> None:
        number = len(self._trials)
        seen = self._trials[: self._search.seen_by(number)]
        if number < self._sweep.most_trials and all(trial.ended for trial in seen) and self._random.random() < 0.5:
            trial = self._search.sample(number, self._trials)
            assert trial is not None
            self._trials.append(trial)

    def _report(self) -> None:
        if alive := [trial for trial in self._trials if not trial.is_silent]:
            trial = self._random.choice(alive)
            step = trial.last_step + 1 + trial.number % 3  # trials report at different steps
            x, m = trial.values["/hyperparams/x"], trial.values.get("/hyperparams/m", 0.5)
            trial.reports[step] = {"val/loss": (x - 1) ** 2 + m + 5 / step}
            fails_behind = 1 if trial.number % 2 else STEPS // 2  # some before the pruner looks, some after
            trial.has_failed = self._failing and trial.number % 5 == 3 and step > fails_behind
            trial.is_silent = step >= STEPS or trial.has_failed

    def _settle(self) -> None:
        for trial in self._trials:
            while (step := self._search.next_decision(trial)) is not None and self._search.is_ready(
                trial, step, self._trials
            ):
                if self._search.decide(trial, step, self._trials) and trial.ended is None and trial.pruned_at is None:
                    trial.pruned_at = step
            trial.is_silent = trial.is_silent or trial.pruned_at is not None
            if trial.ended is None and trial.is_silent and self._search.next_decision(trial) is None:
                step, values = list(trial.counted().items())[-1]
                state = "pruned" if trial.pruned_at is not None else "failed" if trial.has_failed else "complete"
                told = {} if state == "failed" else {name: value for name, value in values.items() if value is not None}
                trial.ended = TrialEnded(number=trial.number, state=state, values=told, step=step)  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [ASHA, HYPERBAND, {"pruner": "median"}])
def test_pruners_end_some_trials_and_spare_the_best(keys: dict[str, Any]) -> None:
    found = [ended for _, ended in Simulation(sweep_of(**keys), order=1).run()]
    pruned = [ended for ended in found if ended.state == "pruned"]
    assert 0 < len(pruned) < len(found)
    assert all(ended.step < STEPS for ended in pruned)


@pytest.mark.parametrize("keys", SEARCHES)
def test_trials_that_fail_change_nothing_about_that(keys: dict[str, Any]) -> None:
    sweep = sweep_of(**keys)
    first = Simulation(sweep, order=1, failing=True).run()
    assert first == Simulation(sweep, order=2, restarts=0.02, failing=True).run()
    assert "failed" in {ended.state for _, ended in first}


def test_another_seed_tries_other_values() -> None:
    first, second = (TrialSearch(sweep_of(seed=seed), parallel=1).sample(0, []) for seed in (0, 1))
    assert first is not None
    assert second is not None
    assert first.values != second.values


def test_a_better_sampler_finds_what_the_random_one_does_not() -> None:
    def best(found: Sequence[tuple[Any, TrialEnded]]) -> float:
        return min(ended.values["val/loss"] for _, ended in found)

    many = {"limits": {"trials": 40}}
    assert best(Simulation(sweep_of(**many), order=1).run()) < best(
        Simulation(sweep_of(sampler="random", **many), order=1).run()
    )


def test_what_comes_after_the_step_of_a_decision_does_not_count() -> None:
    trial = Trial(number=0, values={}, reports={1: {"val/loss": 1.0}, 5: {"val/loss": 0.1}}, pruned_at=1)
    assert list(trial.counted()) == [1]


def test_a_population_goes_on_and_its_worst_members_copy_its_best() -> None:
    found = Simulation(sweep_of(**PBT), order=1).run()
    parents = [parent for (_, parent), _ in found]
    assert parents[:4] == [None] * 4
    for first in range(4, 20, 4):
        before = found[first - 4 : first]
        losses = [ended.values["val/loss"] for _, ended in before]
        best, worst = first - 4 + losses.index(min(losses)), first - 4 + losses.index(max(losses))
        for member in range(4):
            own = first - 4 + member
            assert parents[first + member] == (best if own == worst else own)
            values, theirs = found[first + member][0][0], found[parents[first + member]][0][0]
            assert (values == theirs) == (own != worst), "explored without a copy, or copied without exploring"


@pytest.mark.parametrize("parameter", [{"integer": [0, 2]}, {"uniform": [-2, 2], "step": 1}, {"log_integer": [1, 3]}])
def test_a_population_explores_small_integers_and_long_steps(parameter: dict[str, Any]) -> None:
    found = Simulation(sweep_of(space={"/hyperparams/x": parameter}, **PBT), order=1).run()
    copies = [
        (found[parent][0][0], values) for n, ((values, parent), _) in enumerate(found) if parent not in (None, n - 4)
    ]
    assert len(copies) >= 3
    assert sum(theirs != own for theirs, own in copies) > len(copies) / 2
