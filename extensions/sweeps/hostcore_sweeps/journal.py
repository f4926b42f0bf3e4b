"""``optuna.journal``: the trials that have ended, in Optuna's own storage, for its dashboard and its other tools.

It follows from the records, and is no source of anything. A trial is added once all before it are there, so that its
number is the same.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hostcore_sweeps.search import Trial, as_ended, directions
from hostcore_sweeps.spec import Sweep


class Journal:
    """The journal of a sweep.

    :param path: Created if missing. What a writer that was killed has torn is dropped.
    """

    def __init__(self, path: Path, sweep: Sweep) -> None:
        self._sweep = sweep
        _drop_torn_line(path)
        # Drivers alone write here, and this one holds the sweep: a lock that is there is left of one that was killed.
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name=sweep.sweep_id,
            directions=directions(sweep),
            load_if_exists=True,
        )
        self._count = len(self._study.get_trials(deepcopy=False))

    def update(self, trials: Sequence[Trial]) -> None:
        """Add the trials that have ended, up to the first that has not."""
        for trial in trials[self._count :]:
            if trial.ended is None:
                return
            about = {"run_id": self._sweep.run_id(trial.number), "reason": trial.ended.reason or ""}
            self._study.add_trial(as_ended(self._sweep, trial, trial.ended, user_attrs=about))
            self._count += 1


def _drop_torn_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)
