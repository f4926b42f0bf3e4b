"""``hostcore compare``."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors, table
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.record import RunRecord
    from hostcore.runs.summary import RunSummary
    from hostcore_inspect.comparison import MetricPair
    from hostcore_inspect.plots import Points

_LONGEST_VALUE = 48
#: Tensors that are listed.
_MOST_TENSORS = 12


@attrs.frozen(kw_only=True)
class _Side:
    """One of the runs."""

    #: How the table and the picture call it.
    label: str
    summary: "RunSummary"
    record: "RunRecord"
    metrics: dict[str, float | None]
    best: "Mapping[str, Any] | None"
    #: Of the newest attempt, and of all together.
    seconds: float | None
    total_seconds: float
    points: "dict[str, Points]"

    def as_dict(self) -> dict[str, Any]:
        return {**self.summary.as_dict(), "seconds": self.total_seconds, "best": self.best}


@click.command("compare", short_help="Show in what runs differ, and their curves in one picture.")
@click.argument("a", shell_complete=completion.runs)
@click.argument("b", shell_complete=completion.runs)
@click.argument("more", nargs=-1, shell_complete=completion.runs)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Draw this metric instead of train/loss, and of more than two runs show it alone; repeatable.",
)
@click.option("--sort", metavar="NAME", help="Of more than two runs: sort by a metric, the least first.")
@click.option("--reverse", is_flag=True, help="Of --sort: the greatest first.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the picture goes; compare-A-B.png or compare-N-runs.png, if not given.",
)
@click.option("--no-plot", is_flag=True, help="Draw nothing.")
@click.option("--bits", is_flag=True, help="Instead: find the first step at which two runs differ, and the tensors.")
@runs_dir_option
@json_option
@reports_errors
def compare_command(
    a: str,
    b: str,
    more: tuple[str, ...],
    *,
    metrics: tuple[str, ...],
    sort: str | None,
    reverse: bool,
    picture: Path | None,
    no_plot: bool,
    bits: bool,
    runs: Path,
    as_json: bool,
) -> None:
    """Show in what the runs A and B differ: job, plugins, environment, what came of them, and their curves as a PNG.

    Of more than two runs, a table with a line for each: the metrics, and the keys of the job in which they differ.
    With --bits, recorded metrics and checkpoints of A and B are compared bit for bit: exits 1 where they differ.
    Runs are run ids, beginnings of them, or run directories. An unknown run exits 2.
    """
    from hostcore.runs.find import find_run

    if bits:
        if more or metrics or sort or reverse or picture or no_plot:
            raise click.UsageError("--bits compares two runs, and goes with no other option than --json")
        _compare_bits(find_run(a, runs), find_run(b, runs), as_json=as_json)
        return

    if no_plot and (picture or (metrics and not more)):
        raise click.UsageError("--no-plot draws nothing: leave --plot and --metric out")
    if (sort or reverse) and not (more and sort):
        raise click.UsageError("--sort NAME sorts three runs or more; --reverse goes with it")
    sides = _sides([find_run(name, runs) for name in (a, b, *more)])
    for name in [*([sort] if sort else []), *(metrics if no_plot else [])]:
        _require_metric(name, _columns(sides, []))
    curves = {} if no_plot else _curves(sides, metrics)
    named = f"{len(sides)}-runs" if more else "-".join(side.summary.run_id for side in sides)
    drawn = _draw(curves, picture or Path(f"compare-{named}.png"))
    shown = _ordered(sides, sort, reverse=reverse) if sort else sides
    if as_json:
        document = _many_as_dict(shown, metrics) if more else _as_dict(*shown)
        print_json({**document, "plot": str(drawn.absolute()) if drawn else None})
        return
    if more:
        _tell_many(shown, metrics)
    else:
        _tell(*shown)
    if not no_plot:
        echo(f"\ncurves of {', '.join(curves)}: {drawn}" if drawn else "\nthere are no curves to draw")


def _compare_bits(one: "RunDirectory", other: "RunDirectory", *, as_json: bool) -> None:
    from hostcore_inspect.bits import compare_bits

    found = compare_bits(one, other)
    if as_json:
        print_json(attrs.asdict(found))
    elif found.equal:
        echo(
            f"equal, bit for bit: {found.compared_steps:,} recorded steps and {found.compared_checkpoints:,} "
            f"checkpoints of {one.run_id} and {other.run_id}"
        )
    else:
        lines = [("first different step", f"{found.first_different_step:,}")]
        if found.metric is not None:
            name, mine, theirs = found.metric
            lines.append((name, f"{mine!r} and {theirs!r}"))
        lines.append(("last equal checkpoint", f"{found.last_equal_checkpoint or 'none'}"))
        lines.append(("first different checkpoint", f"{found.first_different_checkpoint or 'none'}"))
        lines.append(("likely cause", ": ".join(filter(None, [found.cause, ", ".join(found.details)]))))
        print_table(["BITS", f"{one.run_id} and {other.run_id}"], lines)
        if found.tensors:
            echo()
            shown = [(each.name, "other shape" if each.max_ulp is None else each.max_ulp) for each in found.tensors]
            print_table(["TENSOR", "ULP"], shown[:_MOST_TENSORS])
            if len(shown) > _MOST_TENSORS:
                echo(f"… and {len(shown) - _MOST_TENSORS:,} more: --json lists all")
        if found.first_unrecorded_step is not None:
            steps = f"--step {found.first_unrecorded_step} --until {found.first_different_step}"
            echo(
                "\nsteps on the way were not recorded; for the first that differs, replay both and compare the replays:"
            )
            for each in (one, other):
                echo(f"  hostcore debug {each.run_id} {steps} --save {each.run_id}-again")
            echo(f"  hostcore compare {' '.join(f'{e.run_id}-again/replay-{e.run_id}' for e in (one, other))} --bits")
    if not found.equal:
        sys.exit(1)


def _as_dict(one: _Side, other: _Side) -> dict[str, Any]:
    from hostcore_inspect.comparison import differences, metric_pairs

    found = differences(one.record, other.record)
    return {
        "a": one.as_dict(),
        "b": other.as_dict(),
        "job": [each.as_dict("pointer") for each in found["job"]],
        "plugins": [each.as_dict("plugin") for each in found["plugins"]],
        "environment": [each.as_dict("name") for each in found["environment"]],
        "metrics": [pair.as_dict() for pair in metric_pairs(one.metrics, other.metrics)],
    }


def _tell(one: _Side, other: _Side) -> None:
    """Print everything for people, a table for each kind of difference."""
    from hostcore_inspect.comparison import differences, metric_pairs

    sides, found = (one.label, other.label), differences(one.record, other.record)
    tables = [_table(["RUN", *sides], _outcome(one, other))]
    for places, what in zip(found.values(), ("job", "plugin", "environment"), strict=True):
        rows = [(each.place, *map(_shown, each.values)) for each in places]
        tables.append(_table([what.upper(), *sides], rows, otherwise=f"the {what}s are the same"))
    pairs = metric_pairs(one.metrics, other.metrics)
    tables.append(_table(["METRIC", *sides, "DIFFERENCE"], map(_metric_row, pairs), otherwise="there are no metrics"))
    echo("\n\n".join(tables))


def _many_as_dict(sides: Sequence[_Side], names: Sequence[str]) -> dict[str, Any]:
    from hostcore_inspect.comparison import ABSENT, differences

    found, columns = differences(*(side.record for side in sides)), _columns(sides, names)
    runs = [
        {
            **side.as_dict(),
            "metrics": {name: side.metrics[name] for name in columns if name in side.metrics},
            **{
                key: {one.place: one.values[at] for one in places if one.values[at] is not ABSENT}
                for key, places in found.items()
            },
        }
        for at, side in enumerate(sides)
    ]
    return {"runs": runs}


def _tell_many(sides: Sequence[_Side], names: Sequence[str]) -> None:
    """Print a table with a line for each run, and what else differs."""
    from hostcore.cli.wording import NOTHING, figure, steps_of
    from hostcore_inspect.comparison import differences

    found, columns = differences(*(side.record for side in sides)), _columns(sides, names)
    rows = [
        (
            *(side.label, side.summary.status, steps_of(side.summary.step, side.summary.max_steps)),
            *(figure(side.metrics[name]) if name in side.metrics else NOTHING for name in columns),
            *(_shown(one.values[at]) for one in found["job"]),
        )
        for at, side in enumerate(sides)
    ]
    echo(_table(["RUN", "STATUS", "STEPS", *columns, *(one.place for one in found["job"])], rows))
    for what, others in (("plugins", found["plugins"]), ("environments", found["environment"])):
        places = ", ".join(one.place for one in others)
        echo(f"\nthe {what} differ: {places} (--json has the values)" if places else f"\nthe {what} are the same")


def _columns(sides: Sequence[_Side], names: Sequence[str]) -> list[str]:
    return list(names) or sorted({name for side in sides for name in side.metrics})


def _ordered(sides: Sequence[_Side], metric: str, *, reverse: bool) -> list[_Side]:
    from hostcore.runs.summary import sorted_by_value

    return sorted_by_value(sides, lambda side: side.metrics.get(metric), reverse=reverse)


def _sides(directories: "Sequence[RunDirectory]") -> list[_Side]:
    same = {one.path.resolve(): one for one in reversed(directories)}
    for one in directories:
        if same.pop(one.path.resolve(), None) is None:
            raise HostcoreError(
                f"the run {one.run_id!r} is named twice",
                code="compare.same_run",
                file=str(one.path),
                hint="name different runs",
            )
    ids = [one.run_id for one in directories]
    # Runs of one name lie in different folders, and are named by their paths.
    return [_side(one, by_name=ids.count(one.run_id) == 1) for one in directories]


def _side(directory: "RunDirectory", *, by_name: bool) -> _Side:
    from hostcore.events.writer import now_ms
    from hostcore.runs.history import History, total_seconds
    from hostcore.runs.record import RunRecord
    from hostcore.runs.result import RunResult
    from hostcore.runs.summary import summarize
    from hostcore_inspect.plots import all_points

    summary, now = summarize(directory), now_ms()
    history = History(directory)
    history.read_on()
    result = RunResult.read(directory.result) if summary.ended_ms is not None else None
    return _Side(
        label=directory.run_id if by_name else str(directory.path),
        summary=summary,
        record=RunRecord.read(directory.record),
        metrics={**(result.metrics if result else {}), **history.metrics},
        best=(result.best if result else None) or history.best,
        seconds=summary.seconds(now),
        total_seconds=total_seconds(
            history.attempts(running=summary.status == "running", seen_ms=summary.seen_ms), now
        ),
        points=all_points(directory.events),
    )


def _curves(sides: Sequence[_Side], metrics: Sequence[str]) -> "dict[str, dict[str, Points]]":
    """Return what to draw: points by metric and run; empty if there are none.

    :raises HostcoreError: When no run has a metric that was asked for.
    """
    known = list({name: None for side in sides for name in side.points})
    for name in metrics:
        _require_metric(name, known)
    chosen = metrics or [name for name in ("train/loss", "val/loss") if name in known]
    chosen = chosen or [name for name in known if all(name in side.points for side in sides)][:1] or known[:1]
    return {name: {side.label: side.points.get(name, []) for side in sides} for name in chosen}


def _require_metric(name: str, known: Sequence[str]) -> None:
    """Refuse a metric that no run has.

    :raises HostcoreError: ``metric.unknown``.
    """
    import difflib

    if name not in known:
        near = difflib.get_close_matches(name, known, n=1) or known[:1]
        hint = f"did you mean {near[0]!r}? They have {', '.join(sorted(known))}" if near else "they have no metrics"
        raise HostcoreError(f"no run has a metric {name!r}", code="metric.unknown", hint=hint)


def _draw(curves: "dict[str, dict[str, Points]]", picture: Path) -> Path | None:
    """Draw the curves; None if there are none.

    :raises HostcoreError: When the picture cannot be written.
    """
    from hostcore_inspect.plots import plot_curves

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
    from hostcore.cli.wording import NOTHING, best_of, lasting, steps_of

    sides = (one, other)
    yield "status", *(side.summary.status for side in sides)
    yield "trainer", *(side.summary.trainer for side in sides)
    yield "steps", *(steps_of(side.summary.step, side.summary.max_steps) for side in sides)
    yield "attempts", *(str(side.summary.attempt) for side in sides)
    yield "duration", *(lasting(side.seconds) for side in sides)
    if any(side.summary.attempt > 1 for side in sides):
        yield "all attempts", *(lasting(side.total_seconds) for side in sides)
    yield "best", *(best_of(side.best) if side.best else NOTHING for side in sides)


def _shown(value: Any) -> str:
    """A value in a cell of a table: JSON, a plugin by its distribution and version."""
    import orjson

    from hostcore.cli.wording import NOTHING
    from hostcore_inspect.comparison import ABSENT

    if value is ABSENT:
        return NOTHING
    if isinstance(value, dict) and "sha256" in value:
        origin = " ".join(value[key] for key in ("distribution", "version") if value[key])
        digest = (value["sha256"] or "")[:12]
        return f"{origin} ({digest})" if origin else digest or NOTHING
    text = orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _metric_row(pair: "MetricPair") -> Sequence[str]:
    from hostcore.cli.wording import NOTHING, figure

    shown = [NOTHING if value is None else figure(value) for value in (pair.a, pair.b)]
    difference = NOTHING if pair.difference is None else f"{pair.difference:+.6g}"
    return pair.name, *shown, difference
