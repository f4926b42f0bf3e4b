"""The page that ``hostcore sweep report`` writes: a sweep in one HTML file that needs nothing else.

``templates/`` has its layout; the contents of its sections are gathered here.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from hostcore.cli.wording import NOTHING, figure
from hostcore_inspect.report.document import Section, assets, render, render_part
from hostcore_sweeps.display import short_names
from hostcore_sweeps.report.axes import in_words
from hostcore_sweeps.report.figures import Looks, SweepFigure, curves, history, parallel, trade_offs
from hostcore_sweeps.report.importance import ParameterImportance, importance
from hostcore_sweeps.spec import plain
from hostcore_sweeps.status import SweepStatus, TrialRow, ranked

_HERE: Final = "hostcore_sweeps.report"
#: Rows of the table: the best, and the newest.
_MOST_ROWS: Final = 2_000
#: Rows in a notebook.
_MOST_IN_PART: Final = 10
_STATES: Final = ("running", "paused", "complete", "pruned", "failed")


@attrs.frozen(kw_only=True)
class _Trials:
    """The table of trials."""

    shown: Sequence[TrialRow]
    #: How many older ones there are.
    left_out: int
    #: What the columns of parameters are called, by JSON pointer.
    names: Mapping[str, str]
    metrics: Sequence[str]
    #: Whether some began from the checkpoint of another.
    have_parents: bool
    #: The columns that hold numbers, from 0.
    numeric: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.shown)


@attrs.frozen(kw_only=True)
class SweepFigures:
    """The pictures of a sweep."""

    #: The objective by trial; of several objectives, each pair of them.
    history: Sequence[SweepFigure]
    curves: Sequence[SweepFigure]
    parallel: Sequence[SweepFigure]
    importances: Sequence[ParameterImportance]

    @classmethod
    def of(cls, status: SweepStatus) -> "SweepFigures":
        """Draw them. Those that would be empty are left out."""
        looks = Looks.of(status)
        lines = parallel(status, looks)
        return cls(
            history=_history(status, looks),
            curves=curves(status, looks),
            parallel=[lines] if lines else [],
            importances=[importance(status, one) for one in status.objectives] if status.trials else [],
        )


def write_page(status: SweepStatus, *, now: int, tells_places: bool = True) -> str:
    """The report of a sweep: an HTML document that needs no other file and no network.

    :param now: When it is written, in milliseconds since 1970.
    :param tells_places: Whether it has the sweep's folder, and what to type; not for readers at another machine.
    """
    return render(
        "sweep.html",
        package=_HERE,
        status=status,
        spec=status.sweep.spec,
        counts=counts_in_words(status),
        best=[status.trials[number] for number in status.best],
        names=short_names(list(status.sweep.space)),
        tells_places=tells_places,
        commands=_commands(status) if tells_places else {},
        value_in_words=in_words,
        objective_in_words=objective_in_words,
        sections=[one for one in _sections(status) if one.content],
        now=now,
        style=assets("hostcore_inspect.report", "page.css", "plots.css") + assets(_HERE, "sweep.css", "pictures.css"),
        script=assets(_HERE, "sweep.js"),
    )


def write_part(status: SweepStatus) -> str:
    """A sweep as a notebook shows it: the best trials, and the history of the objective."""
    rows = ranked(status)[:_MOST_IN_PART]
    metrics = [one.metric for one in status.objectives]
    return render_part(
        "part.html",
        package=_HERE,
        status=status,
        rows=rows,
        left_out=len(status.trials) - len(rows),
        counts=counts_in_words(status),
        columns=[*metrics, *short_names(list(status.sweep.space)).values()],
        history=_history(status, Looks.of(status)),
        value_in_words=in_words,
        style=assets(_HERE, "part.css") + f".hostcore-sweep {{ {assets(_HERE, 'pictures.css')} }}",
    )


def _history(status: SweepStatus, looks: Looks) -> list[SweepFigure]:
    """The objective by trial; of several objectives, each pair of them."""
    if len(status.objectives) > 1:
        return trade_offs(status, looks)
    drawn = history(status, looks)
    return [drawn] if drawn else []


def _sections(status: SweepStatus) -> Iterator[Section]:
    figures = SweepFigures.of(status)
    several = len(status.objectives) > 1
    yield Section("history", "Trade-offs" if several else "History", figures.history)
    yield Section("trials", "Trials", _trials(status))
    yield Section("parallel", "Parameters", figures.parallel)
    yield Section("importance", "Importance", figures.importances)
    yield Section("steps", "Curves", figures.curves)
    document = plain(status.sweep.spec)
    yield Section("sweep", "Sweep", orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode())


def _trials(status: SweepStatus) -> _Trials:
    rows = status.trials
    if len(rows) > _MOST_ROWS:
        best = [row for row in rows[:-_MOST_ROWS] if row.number in status.best]
        rows = [*best, *rows[-_MOST_ROWS:]]
    metrics = [one.metric for one in status.objectives]
    are_numbers = [parameter.choice is None for parameter in status.sweep.space.values()]
    have_parents = any(row.parent is not None for row in rows)
    columns = [True, False, *(True for _ in metrics), *are_numbers, *(True for _ in range(have_parents)), True, True]
    return _Trials(
        shown=rows,
        left_out=len(status.trials) - len(rows),
        names=short_names(list(status.sweep.space)),
        metrics=metrics,
        have_parents=have_parents,
        numeric=[column for column, is_number in enumerate(columns) if is_number],
    )


def counts_in_words(status: SweepStatus) -> str:
    """``12 of 30: 9 complete, 3 pruned``."""
    counts = [f"{count:,} {state}" for state in _STATES if (count := status.count(state))]
    told = f"{len(status.trials):,} of {status.most_trials:,}"
    return f"{told}: {', '.join(counts)}" if counts else told


def objective_in_words(status: SweepStatus) -> str:
    """``minimize val/loss``, by the last value of a trial unless by its best."""
    words = {"min": "minimize", "max": "maximize"}
    of_each = {"last": "", "best": ", the best of each trial"}
    return "; ".join(f"{words[one.mode]} {one.metric}{of_each[one.value]}" for one in status.objectives)


def best_in_words(status: SweepStatus) -> str:
    """``0.0312 by trial 7``; of several objectives, the numbers of trials."""
    if not status.best:
        return NOTHING
    if len(status.objectives) > 1:
        return f"trials {', '.join(map(str, status.best))}"
    row = status.trials[status.best[0]]
    return f"{figure(row.objective[status.objectives[0].metric])} by trial {row.number}"


def _commands(status: SweepStatus) -> Mapping[str, Any]:
    """Return commands to type, by purpose."""
    folder = str(status.folder.path)
    found = {"Job of the best": ["best", folder]} if status.best else {}
    if status.state == "paused":
        found["To go on"] = ["run", folder]
    return {what: shlex.join(["hostcore", "sweep", *words]) for what, words in found.items()}
