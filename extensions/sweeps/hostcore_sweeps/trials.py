"""The trials of a sweep: what a driver knows of each, and how Optuna calls it.

``optuna.journal`` has those that have ended, in Optuna's own storage, for its dashboard and its other tools. It follows
from the records, and is no source of anything. A trial is added once all before it are there, so that its number is
the same.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from hostcore_sweeps.folder import file_errors
from hostcore_sweeps.records import TrialEnded
from hostcore_sweeps.space import Parameter, Values, to_distributions, to_params
from hostcore_sweeps.spec import Sweep

_STATES: Final = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@attrs.define(kw_only=True)
class Trial:
    """State of a trial."""

    number: int
    values: Values
    #: The trial whose last checkpoint its run begins from; None: it begins at step 0.
    parent: int | None = None
    #: By step and metric, in the order of steps.
    reports: dict[int, Mapping[str, float | None]] = attrs.field(factory=dict)
    #: The step at which it is to end early; what came after does not count.
    pruned_at: int | None = None
    #: Whether its run has ended for good, so that it reports nothing more.
    is_silent: bool = False
    #: Whether its run has failed for good.
    has_failed: bool = False
    #: How it has ended; None while something is left to decide.
    ended: TrialEnded | None = None

    @property
    def last_step(self) -> int:
        """Of its newest report; 0 before the first."""
        return next(reversed(self.reports), 0)

    def counted(self) -> dict[int, Mapping[str, float | None]]:
        """The reports that count."""
        until = math.inf if self.pruned_at is None else self.pruned_at
        return {step: values for step, values in self.reports.items() if step <= until}


def directions(sweep: Sweep) -> list[StudyDirection]:
    """The directions of the objectives."""
    minimize, maximize = StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE
    return [minimize if one.mode == "min" else maximize for one in sweep.spec.objectives]


def frozen(space: Mapping[str, Parameter], trial: Trial, *, state: TrialState, **fields: Any) -> FrozenTrial:
    """A trial of Optuna's with the values of a trial."""
    params, distributions = to_params(space, trial.values), to_distributions(space, trial.values)
    return create_trial(state=state, params=params, distributions=distributions, **fields)


def as_ended(sweep: Sweep, trial: Trial, ended: TrialEnded, **fields: Any) -> FrozenTrial:
    """A trial of Optuna's for one that has ended.

    :param fields: Further ones of Optuna's.
    """
    objectives = sweep.spec.objectives
    values = [ended.values[one.metric] for one in objectives] if ended.values else None
    reported = trial.counted() if len(objectives) == 1 else {}
    metric = objectives[0].metric
    known = {step: number_of(one[metric]) for step, one in reported.items() if metric in one}
    return frozen(sweep.space, trial, state=_STATES[ended.state], values=values, intermediate_values=known, **fields)


def number_of(value: float | None) -> float:
    """A metric as Optuna has it: not a number where it is not finite."""
    return math.nan if value is None else value


class OptunaJournal:
    """The journal of a sweep.

    :param path: Created if missing. What a writer that was killed has torn is dropped. A file that Optuna cannot read
        is removed, and follows from the records again.
    :raises SweepUnwritable: When it cannot be written.
    """

    def __init__(self, path: Path, sweep: Sweep) -> None:
        self._sweep = sweep
        self._path = path
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with file_errors(path):
            _drop_torn_line(path)
            # Drivers alone write here, and this one holds the sweep: a lock that is there is of one that was killed.
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
            try:
                self._study, self._count = self._opened()
            except OSError:
                raise
            except Exception:  # noqa: BLE001 - whatever Optuna raises about what somebody else has written there
                path.unlink()
                self._study, self._count = self._opened()

    def _opened(self) -> tuple[optuna.Study, int]:
        """The study, and how many trials it has."""
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(self._path))),
            study_name=self._sweep.sweep_id,
            directions=directions(self._sweep),
            load_if_exists=True,
        )
        return study, len(study.get_trials(deepcopy=False))

    def update(self, trials: Sequence[Trial]) -> None:
        """Add the trials that have ended, up to the first that has not.

        :raises SweepUnwritable: When it cannot be written.
        """
        for trial in trials[self._count :]:
            if trial.ended is None:
                return
            about = {"run_id": self._sweep.run_id(trial.number), "reason": trial.ended.reason or ""}
            with file_errors(self._path):
                self._study.add_trial(as_ended(self._sweep, trial, trial.ended, user_attrs=about))
            self._count += 1


def _drop_torn_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)
