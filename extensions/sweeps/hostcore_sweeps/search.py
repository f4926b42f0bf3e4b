"""Decisions of a sweep: the values of its next trial, and the trials that end early. Optuna decides, on these inputs.

Every decision is a function of the seed, the number of the trial, and the values of trials with smaller numbers. When
something happened plays no part in it, so a sweep that was killed and one that was not decide the same:

- Trial *n* is sampled from the results of trials up to *n - parallel*, once all of these have ended, by a sampler that
  is seeded with the seed and *n*. It is shown the trials between as running, with their values alone.
- Whether trial *n* ends at step *s* is decided from what trials with smaller numbers had reported up to *s*, once each
  of them has come as far or has ended. It trains on while that is awaited. A trial that was to end at a step counts
  with its value there, however far it had come by then.

Population based training (Jaderberg et al., 2017, arXiv:1711.09846) is over runs that begin from checkpoints of others.
Trial *n* is member *n mod population* in generation *n div population*. It trains for one interval, from the last
checkpoint of a trial of the generation before: its own predecessor or, if that was in the worst quarter, one of the
best quarter (*exploit*), with other values (*explore*). A number becomes 0.8 or 1.2 times itself, a choice the one
beside it; one in four is sampled anew. A generation begins once the one before has ended.
"""

import hashlib
import math
import random
import warnings
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import attrs
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hostcore_sweeps.records import TrialEnded
from hostcore_sweeps.space import Parameter, Values, grid_at, suggest
from hostcore_sweeps.spec import ObjectiveSpec, PrunerSpec, SamplerSpec, Sweep
from hostcore_sweeps.trials import Trial, as_ended, directions, frozen, number_of

#: Hyperband assigns trials to brackets by the name of their study; the same sweep under another id is the same search.
_STUDY: Final = "sweep"
#: Of population based training: what a number is multiplied with, and how often a value is sampled anew.
_FACTORS: Final = (0.8, 1.2)
_ANEW: Final = 0.25
#: The share of a generation that copies, and that is copied.
_QUANTILE: Final = 4


class TrialSearch:
    """The decisions of one sweep. It remembers what it has decided about pruning, and decides each step once.

    :param parallel: Trials that run at the same time: how far sampling lags behind.
    """

    def __init__(self, sweep: Sweep, *, parallel: int) -> None:
        self._sweep = sweep
        self._space = sweep.space
        self._parallel = parallel
        self._objectives = sweep.spec.objectives
        self._pruner = _pruner(sweep.spec.pruner)
        self._prunes = sweep.spec.pruner.use != "none"
        self._as_of = _AsOf()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = self._new_study(self._as_of)
        #: The step up to which each trial was decided about.
        self._decided: dict[int, int] = {}
        #: So many trials, from the first on, are known as a whole, and decided about.
        self._all_settled = 0
        #: What the pruner remembers of each trial: step and value, by name.
        self._remembered: dict[int, dict[str, tuple[int, Any]]] = {}
        #: What CMA-ES remembers of each trial that it has sampled.
        self._sampled: dict[int, dict[str, Any]] = {}

    @property
    def looks_back(self) -> bool:
        """True if sampling depends on the results of other trials."""
        return self._sweep.spec.sampler.use in ("tpe", "cmaes")

    def seen_by(self, number: int) -> int:
        """Return how many trials have to have ended, from the first on, before a trial is sampled."""
        population = self._sweep.spec.sampler.population
        if population:
            return number // population * population
        return max(0, number - self._parallel + 1) if self.looks_back else 0

    def sample(self, number: int, trials: Sequence[Trial]) -> Trial | None:
        """The next trial, with its values; None when there are no more.

        :param trials: All with smaller numbers.
        """
        spec = self._sweep.spec
        if spec.sampler.use == "grid":
            values = grid_at(self._space, number)
            return None if values is None else Trial(number=number, values=values)
        if spec.sampler.use == "cmaes":  # its state goes from trial to trial, and is not kept on the disk
            for before in range(len(self._sampled), number):
                self._ask(before, trials)
        fresh = Trial(number=number, values=self._ask(number, trials))
        population = spec.sampler.population
        return self._descended(fresh, population, trials) if population and number >= population else fresh

    def _descended(self, fresh: Trial, population: int, trials: Sequence[Trial]) -> Trial | None:
        """A trial that begins from a checkpoint of one of the generation before."""
        end = self.seen_by(fresh.number)
        before = [trial.ended for trial in trials[end - population : end] if trial.ended is not None]
        rng = random.Random(_seed(self._sweep.spec.seed, fresh.number))  # noqa: S311 - no secret
        found = _descent(fresh.number, population, before, self._objectives[0], rng)
        if found is None:
            return None
        values = trials[found.parent].values
        if found.is_copy:
            values = _explored(self._space, values, fresh.values, rng)
        return Trial(number=fresh.number, values=values, parent=found.parent)

    def _ask(self, number: int, trials: Sequence[Trial]) -> Values:
        sampler = _sampler(self._sweep.spec.sampler, _seed(self._sweep.spec.seed, number))
        study = self._new_study(InMemoryStorage(), sampler)
        ended = self.seen_by(number)
        study.add_trials([self._as_past(trial, is_seen=trial.number < ended) for trial in trials[:number]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            asked = study.ask()
            values = suggest(self._space, asked)
        self._sampled[number] = study.get_trials(deepcopy=False)[-1].system_attrs
        return values

    def _as_past(self, trial: Trial, *, is_seen: bool) -> FrozenTrial:
        """A trial as a sampler sees it."""
        remembered = self._sampled.get(trial.number, {})
        if not is_seen or trial.ended is None:
            return frozen(self._space, trial, state=TrialState.RUNNING, system_attrs=remembered)
        return as_ended(self._sweep, trial, trial.ended, system_attrs=remembered)

    def next_decision(self, trial: Trial) -> int | None:
        """The step of a trial that is to be decided about next; None if none is."""
        if not self._prunes:
            return None
        decided = self._decided.get(trial.number, -1)
        metric = self._objectives[0].metric
        # One that is known to be pruned is decided about again up to there: the pruner remembers it then.
        return next((step for step, values in trial.counted().items() if step > decided and metric in values), None)

    def is_ready(self, trial: Trial, step: int, trials: Sequence[Trial]) -> bool:
        """Return whether everything that the decision about a step depends on is known."""
        return all(self._settled(before) >= step for before in trials[self._all_settled : trial.number])

    def unsettled(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """The trials from the first on about which something may still be decided."""
        while self._all_settled < len(trials) and self._settled(trials[self._all_settled]) == math.inf:
            self._all_settled += 1
        return trials[self._all_settled :]

    def _settled(self, trial: Trial) -> float:
        """The step up to which everything about a trial is known and decided."""
        if (awaited := self.next_decision(trial)) is not None:
            return awaited - 1
        return math.inf if trial.is_silent or trial.pruned_at is not None else self._decided.get(trial.number, -1)

    def decide(self, trial: Trial, step: int, trials: Sequence[Trial]) -> bool:
        """Decide whether a trial ends at a step."""
        self._as_of.trials = lambda: [self._as_of_step(before, step) for before in trials[: trial.number]]
        self._as_of.noted = {}
        asked = self._as_of_step(trial, step, state=TrialState.RUNNING)
        is_pruned = self._pruner.prune(self._study, asked)
        remembered = self._remembered.setdefault(trial.number, {})
        remembered.update({name: (step, value) for name, value in self._as_of.noted.items()})
        self._decided[trial.number] = step
        return is_pruned

    def _as_of_step(self, trial: Trial, step: int, *, state: TrialState | None = None) -> FrozenTrial:
        """A trial as it was when it had come to a step."""
        until = step if trial.pruned_at is None else min(step, trial.pruned_at)
        metric = self._objectives[0].metric
        known = {
            at: number_of(values[metric]) for at, values in trial.reports.items() if at <= until and metric in values
        }
        if state is None:
            is_behind = trial.last_step < step
            pruned = trial.pruned_at is not None and trial.pruned_at <= step
            failed = trial.has_failed and is_behind
            state = TrialState.PRUNED if pruned else TrialState.FAIL if failed else TrialState.COMPLETE
        remembered = self._remembered.get(trial.number, {})
        return FrozenTrial(
            number=trial.number,
            trial_id=trial.number,
            state=state,
            value=None,
            datetime_start=None,
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={name: value for name, (at, value) in remembered.items() if at <= step},
            intermediate_values=known,
        )

    def _new_study(self, storage: InMemoryStorage, sampler: BaseSampler | None = None) -> Study:
        sampler = sampler or RandomSampler(seed=0)
        return optuna.create_study(
            storage=storage, sampler=sampler, pruner=self._pruner, study_name=_STUDY, directions=directions(self._sweep)
        )


class _AsOf(InMemoryStorage):
    """A storage that shows a pruner the trials as of a step, and keeps what it notes about the one that it decides."""

    def __init__(self) -> None:
        super().__init__()
        self.trials: Any = list
        self.noted: dict[str, Any] = {}

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002 - the interface of Optuna
        deepcopy: bool = True,  # noqa: ARG002
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials; made only when a pruner asks, which it seldom does."""
        return [trial for trial in self.trials() if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:  # noqa: ARG002
        """Keep a note."""
        self.noted[key] = value


def _seed(seed: int, number: int) -> int:
    """The seed of the sampler of one trial."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def _sampler(spec: SamplerSpec, seed: int) -> BaseSampler:
    startup = spec.startup_trials
    if spec.use == "tpe":
        return TPESampler(seed=seed, n_startup_trials=10 if startup is None else startup, constant_liar=True)
    if spec.use == "cmaes":
        startup = 1 if startup is None else startup
        return CmaEsSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
    return RandomSampler(seed=seed)


def _pruner(spec: PrunerSpec) -> BasePruner:
    factor = spec.reduction_factor or 3
    if spec.use == "median":
        startup = 5 if spec.startup_trials is None else spec.startup_trials
        return MedianPruner(startup, spec.warmup_steps or 0, spec.interval_steps or 1)
    if spec.use == "asha":
        return SuccessiveHalvingPruner(min_resource=spec.min_steps or 1, reduction_factor=factor)
    if spec.use == "hyperband":
        return HyperbandPruner(
            min_resource=spec.min_steps or 1, max_resource=spec.max_steps or 1, reduction_factor=factor
        )
    return NopPruner()


@attrs.frozen(kw_only=True)
class _Descent:
    """Start of a trial."""

    #: The trial whose last checkpoint it begins from.
    parent: int
    #: Whether that is another member's, whose values are explored around; its own are kept.
    is_copy: bool


def _descent(
    number: int, population: int, before: Sequence[TrialEnded], objective: ObjectiveSpec, rng: random.Random
) -> _Descent | None:
    """Choose the start of a trial; None when no trial of the generation before is complete.

    :param before: Ends of the trials of the generation before, by member.
    """
    sign = 1 if objective.mode == "min" else -1
    ranked = sorted(
        (ended for ended in before if ended.state == "complete"),
        key=lambda ended: (sign * ended.values[objective.metric], ended.number),
    )
    if not ranked:
        return None
    own = before[number % population]
    share = max(1, len(ranked) // _QUANTILE)
    is_bad = own.state != "complete" or (len(ranked) > share and own in ranked[-share:])
    if is_bad:
        return _Descent(parent=rng.choice(ranked[:share]).number, is_copy=True)
    return _Descent(parent=own.number, is_copy=False)


def _explored(space: Mapping[str, Parameter], values: Values, fresh: Values, rng: random.Random) -> dict[str, Any]:
    """Values near those of another trial.

    :param space: In the order of :func:`~hostcore_sweeps.space.ordered`.
    :param fresh: Values that were sampled anew.
    """
    found: dict[str, Any] = {}
    for pointer, parameter in space.items():
        if not parameter.is_active(found, space):
            continue
        is_anew = rng.random() < _ANEW
        if pointer in values and not (is_anew and pointer in fresh):
            found[pointer] = _near(parameter, values[pointer], rng)
        else:
            found[pointer] = fresh.get(pointer, parameter.first)
    return found


def _near(parameter: Parameter, value: Any, rng: random.Random) -> Any:
    if parameter.choice is not None:
        at = [parameter.to_optuna(choice) for choice in parameter.choice].index(parameter.to_optuna(value))
        return parameter.choice[min(max(at + rng.choice((-1, 1)), 0), len(parameter.choice) - 1)]
    factor = rng.choice(_FACTORS)
    if (moved := parameter.nearest(value * factor)) != value:
        return moved
    # A small integer, a long step and 0 are next to themselves: one step, or else the same share of the range.
    low, high = parameter.range
    step = parameter.step or (1 if "integer" in parameter.kind else (factor - 1) * (high - low))
    forth, back = (parameter.nearest(value + math.copysign(step, way)) for way in (factor - 1, 1 - factor))
    return forth if forth != value else back
