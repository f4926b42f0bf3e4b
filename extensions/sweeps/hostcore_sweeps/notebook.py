"""``hostcore.sweep``: a whole sweep from Python, for notebooks and scripts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.notebook import errors_in_plain_words
from hostcore.runs.directory import runs_dir
from hostcore_sweeps.display import Screen, summary
from hostcore_sweeps.driving import drive
from hostcore_sweeps.folder import SweepFolder, TrialPlace, sweeps_dir
from hostcore_sweeps.spec import load_sweep
from hostcore_sweeps.status import SweepStatus, TrialRow, job_of_trial, read_status


@attrs.frozen(repr=False)
class SweepResult:
    """Result of a sweep. A notebook shows its best trials and its history."""

    status: SweepStatus

    @property
    def trials(self) -> Sequence[TrialRow]:
        """All trials, by number."""
        return self.status.trials

    @property
    def best_trial(self) -> TrialRow | None:
        """The best trial, or the first of those that none is better than; None while none is complete."""
        return self.status.trials[self.status.best[0]] if self.status.best else None

    @property
    def best(self) -> dict[str, Any] | None:
        """The job of the best trial as a job of its own, for :func:`hostcore.run`; None while none is complete."""
        return job_of_trial(self.status) if self.status.best else None

    @property
    def importance(self) -> Mapping[str, float]:
        """Importance of each parameter for the (first) objective, by JSON pointer; empty while that is not known."""
        from hostcore_sweeps.report.importance import importance

        return importance(self.status, self.status.objectives[0]).shares

    def __repr__(self) -> str:
        return f"<{summary(self.status)}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from hostcore_sweeps.report.page import write_part

        return write_part(self.status)


@errors_in_plain_words()
def sweep(
    sweep: str | Path | Mapping[str, Any],
    on_change: Callable[[SweepStatus], object] | None = None,
    *,
    sweep_dir: str | Path | None = None,
    server: str | None = None,
) -> SweepResult:
    """Run a sweep to its end, or resume it. Its trials are processes of their own, as with ``hostcore sweep``.

    An interrupt (of the kernel, or Ctrl-C) pauses the trials, each with a checkpoint; the same call resumes them.

    :param sweep: The path of a sweep file, or the sweep itself.
    :param on_change: Called with the status, in this thread, when a trial has come further; lines on standard error if
        not given.
    :param sweep_dir: The folder of this sweep; in ``HOSTCORE_SWEEPS_DIR``, or in ``./sweeps``, if not given.
    :param server: The URL of the service that runs the trials; this machine if not given.
    :return: Its status. A sweep none of whose trials is complete is a result too, not an exception.
    :raises HostcoreError: When the sweep is invalid, another process drives it, or the folder has another sweep.
    """
    loaded = load_sweep(sweep if isinstance(sweep, Mapping) else Path(sweep))
    folder = SweepFolder(Path(sweep_dir or sweeps_dir() / loaded.sweep_id).absolute())
    screen = _Changes(on_change) if on_change else None
    drive(loaded, folder, TrialPlace(runs=runs_dir(), server=server), screen=screen)
    return SweepResult(read_status(folder))


class _Changes(Screen):
    """Calls something when a trial has come further."""

    def __init__(self, tell: Callable[[SweepStatus], object]) -> None:
        self._tell = tell
        self._told: object = None

    def __enter__(self) -> "_Changes":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, ask: Callable[[], SweepStatus]) -> None:
        """Look whether there is something new."""
        status = ask()
        now = (status.state, [(row.state, row.step, row.starts) for row in status.trials])
        if now != self._told:
            self._told = now
            self._tell(status)
