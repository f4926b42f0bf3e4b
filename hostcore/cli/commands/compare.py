"""``hostcore compare``."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors, table
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.report.comparison import MetricPair
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.record import RunRecord
    from hostcore.runs.summary import RunSummary
    from hostcore.supervisor.plot import Points

_LONGEST_VALUE = 48


@attrs.frozen(kw_only=True)
class _Side:
    """One of the two runs."""

    #: How the table and the picture call it.
    label: str
    summary: "RunSummary"
    record: "RunRecord"
    metrics: dict[str, float | None]
    #: Of all attempts together.
    seconds: float
    points: "dict[str, Points]"

    def as_dict(self) -> dict[str, Any]:
        return {**self.summary.as_dict(), "seconds": self.seconds}


@click.command("compare", short_help="Show in what two runs differ, and their curves in one picture.")
@click.argument("a", shell_complete=completion.runs)
@click.argument("b", shell_complete=completion.runs)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Draw this metric instead of train/loss.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the picture goes; compare-A-B.png in the working directory, if not given.",
)
@click.option("--no-plot", is_flag=True, help="Draw nothing.")
@runs_dir_option
@json_option
@reports_errors
def compare_command(
    a: str, b: str, *, metrics: tuple[str, ...], picture: Path | None, no_plot: bool, runs: Path, as_json: bool
) -> None:
    """Show in what the runs A and B differ: job, plugins, environment, what came of them, and their curves as a PNG.

    A and B are run ids, beginnings of them, or run directories. An unknown run exits 2.
    """
    from hostcore.runs.find import find_run

    if no_plot and (picture or metrics):
        raise click.UsageError("--no-plot draws nothing: leave --plot and --metric out")
    one, other = _sides(find_run(a, runs), find_run(b, runs))
    curves = {} if no_plot else _curves(one, other, metrics)
    drawn = _draw(curves, picture or Path(f"compare-{one.summary.run_id}-{other.summary.run_id}.png"))
    if as_json:
        print_json({**_as_dict(one, other), "plot": str(drawn.absolute()) if drawn else None})
        return
    _tell(one, other)
    if not no_plot:
        echo(f"\ncurves of {', '.join(curves)}: {drawn}" if drawn else "\nthere are no curves to draw")


def _as_dict(one: _Side, other: _Side) -> dict[str, Any]:
    from hostcore.report.comparison import environment_differences, job_differences, metric_pairs, plugin_differences

    records = (one.record, other.record)
    return {
        "a": one.as_dict(),
        "b": other.as_dict(),
        "job": [each.as_dict("pointer") for each in job_differences(*records)],
        "plugins": [each.as_dict("plugin") for each in plugin_differences(*records)],
        "environment": [each.as_dict("name") for each in environment_differences(*records)],
        "metrics": [pair.as_dict() for pair in metric_pairs(one.metrics, other.metrics)],
    }


def _tell(one: _Side, other: _Side) -> None:
    """Print everything for people, a table for each kind of difference."""
    from hostcore.report.comparison import environment_differences, job_differences, metric_pairs, plugin_differences

    sides, records = (one.label, other.label), (one.record, other.record)
    tables = [_table(["RUN", *sides], _outcome(one, other))]
    for head, what, differences in (
        ("JOB", "jobs", job_differences(*records)),
        ("PLUGIN", "plugins", plugin_differences(*records)),
        ("ENVIRONMENT", "environments", environment_differences(*records)),
    ):
        rows = [(each.place, _shown(each.a), _shown(each.b)) for each in differences]
        tables.append(_table([head, *sides], rows, otherwise=f"the {what} are the same"))
    pairs = metric_pairs(one.metrics, other.metrics)
    tables.append(_table(["METRIC", *sides, "DIFFERENCE"], map(_metric_row, pairs), otherwise="there are no metrics"))
    echo("\n\n".join(tables))


def _sides(a: "RunDirectory", b: "RunDirectory") -> tuple[_Side, _Side]:
    if a.path.resolve() == b.path.resolve():
        raise HostcoreError(
            f"A and B are both the run {a.run_id!r}", code="compare.same_run", file=str(a.path), hint="name two runs"
        )
    by_name = a.run_id != b.run_id  # else one of them lies in another folder, and its path tells them apart
    return _side(a, by_name=by_name), _side(b, by_name=by_name)


def _side(directory: "RunDirectory", *, by_name: bool) -> _Side:
    from hostcore.events.writer import now_ms
    from hostcore.runs.history import History, total_seconds
    from hostcore.runs.record import RunRecord
    from hostcore.runs.result import RunResult
    from hostcore.runs.summary import summarize
    from hostcore.supervisor.plot import all_points

    summary = summarize(directory)
    history = History(directory)
    history.read_on()
    result = RunResult.read(directory.result) if summary.ended_ms is not None else None
    return _Side(
        label=directory.run_id if by_name else str(directory.path),
        summary=summary,
        record=RunRecord.read(directory.record),
        metrics={**(result.metrics if result else {}), **history.metrics},
        seconds=total_seconds(history.attempts(running=summary.status == "running"), now_ms()),
        points=all_points(directory.events),
    )


def _curves(one: _Side, other: _Side, metrics: Sequence[str]) -> "dict[str, dict[str, Points]]":
    """What to draw: points by metric and run; empty if there are none.

    :raises HostcoreError: When neither run has a metric that was asked for.
    """
    known = list({**one.points, **other.points})
    for name in metrics:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1) or known[:1]
            hint = f"did you mean {near[0]!r}? They have {', '.join(sorted(known))}" if near else "they have no metrics"
            raise HostcoreError(f"neither run has a metric {name!r}", code="metric.unknown", hint=hint)
    chosen = metrics or [name for name in ("train/loss", "val/loss") if name in known]
    chosen = chosen or [name for name in known if name in one.points and name in other.points][:1] or known[:1]
    return {name: {side.label: side.points.get(name, []) for side in (one, other)} for name in chosen}


def _draw(curves: "dict[str, dict[str, Points]]", picture: Path) -> Path | None:
    """Draw the curves; None if there are none.

    :raises HostcoreError: When the picture cannot be written.
    """
    from hostcore.supervisor.plot import plot_curves

    if not curves:
        return None
    if picture.suffix.lower() != ".png":
        raise HostcoreError(
            f"the picture is a PNG, and {picture.name} is not called one", code="plot.name", hint="name it *.png"
        )
    try:
        plot_curves(curves, picture)
    except OSError as error:
        raise HostcoreError(
            f"the picture cannot be written: {error.strerror or error}",
            code="plot.unwritable",
            file=str(picture),
            hint="--plot FILE puts it elsewhere, --no-plot leaves it out",
        ) from error
    return picture


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, otherwise: str = "") -> str:
    """A table, or what stands for one without rows."""
    lines = table(head, list(rows))
    return "\n".join(lines) if len(lines) > 1 else otherwise


def _outcome(one: _Side, other: _Side) -> Iterator[Sequence[str]]:
    from hostcore.report.wording import lasting, steps_of

    sides = (one, other)
    yield "status", *(side.summary.status for side in sides)
    yield "trainer", *(side.summary.trainer for side in sides)
    yield "steps", *(steps_of(side.summary.step, side.summary.max_steps) for side in sides)
    yield "attempts", *(str(side.summary.attempt) for side in sides)
    yield "duration", *(lasting(side.seconds) for side in sides)


def _shown(value: Any) -> str:
    """A value in a cell of a table: JSON, a plugin by its distribution and version."""
    import orjson

    from hostcore.report.comparison import ABSENT
    from hostcore.report.wording import NOTHING

    if value is ABSENT:
        return NOTHING
    if isinstance(value, dict) and "sha256" in value:
        origin = " ".join(value[key] for key in ("distribution", "version") if value[key])
        digest = (value["sha256"] or "")[:12]
        return f"{origin} ({digest})" if origin else digest or NOTHING
    text = orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _metric_row(pair: "MetricPair") -> Sequence[str]:
    from hostcore.report.wording import NOTHING, figure

    shown = [NOTHING if value is None else figure(value) for value in (pair.a, pair.b)]
    difference = NOTHING if pair.difference is None else f"{pair.difference:+.6g}"
    return pair.name, *shown, difference
