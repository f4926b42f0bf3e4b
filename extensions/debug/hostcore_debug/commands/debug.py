"""``hostcore debug``."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors, style

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory
    from hostcore_debug.replay import Replayed, ReplayRequest
    from hostcore_debug.run_rows import RowPlace, RunRows
    from hostcore_debug.spikes import Spike

    Places = Sequence[RowPlace] | None

#: Modules and spikes that are listed.
_LISTED = 12


@attrs.frozen(kw_only=True)
class _Options:
    step: str | None
    until: int | None
    rank: int | None
    pdb: bool
    debugpy: int
    changes: tuple[str, ...]
    without: tuple[str, ...]
    save: Path | None
    metric: str
    factor: float
    as_json: bool


@click.command("debug", short_help="Train a step of a run again, beside it: rows, gradients, debugger.")
@click.argument("run", shell_complete=completion.runs)
@click.option("--step", metavar="N|last", help="The step to look at; `last` of a failed run is the one that failed.")
@click.option("--until", type=click.IntRange(min=1), metavar="N", help="Look at all steps up to this one.")
@click.option("--rank", type=click.IntRange(min=0), help="List the rows of this rank alone.")
@click.option("--pdb", "wants_pdb", is_flag=True, help="Stop in pdb before train_step of that step; of one rank.")
@click.option("--debugpy", type=click.IntRange(1, 65535), metavar="PORT", help="Wait there for an editor instead.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="What if: change a key of the job.")
@click.option("--without-rows", multiple=True, metavar="FILE:ROW", help="What if: leave a row of the step out.")
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Write rows and final state there.")
@click.option("--spikes", "finds_spikes", is_flag=True, help="Instead of --step: list the steps whose loss stands out.")
@click.option("--bisect-rows", is_flag=True, help="Halve the rows of the step until those that make its spike remain.")
@click.option("--metric", default="train/loss", show_default=True, help="The metric whose spikes are looked for.")
@click.option(
    "--factor",
    type=click.FloatRange(min=1, min_open=True),
    default=3.0,
    show_default=True,
    metavar="K",
    help="A spike is above K times the median of the 50 values before.",
)
@runs_dir_option
@json_option
@reports_errors
def debug_command(
    run: str,
    *,
    step: str | None,
    until: int | None,
    rank: int | None,
    wants_pdb: bool,
    debugpy: int | None,
    changes: tuple[str, ...],
    without_rows: tuple[str, ...],
    save: Path | None,
    finds_spikes: bool,
    bisect_rows: bool,
    metric: str,
    factor: float,
    runs: Path,
    as_json: bool,
) -> None:
    """Train a step of RUN again, from the newest checkpoint before it, in a folder of its own.

    Shows its rows, metrics, norms of gradients and updates by module, time and memory. RUN is only read. Each replayed
    metric must be the recorded one, bit for bit; the first that is not is named, with what is known to be different.

    RUN is a run id, the beginning of one, or a run directory. Exits with 1 where the replay differs, or the step fails.
    """
    if finds_spikes == (step is not None):
        raise click.UsageError("give either --step N or --spikes")
    if as_json and (wants_pdb or debugpy):
        raise click.UsageError("--json and a debugger exclude each other")
    if wants_pdb and debugpy:
        raise click.UsageError("--pdb and --debugpy exclude each other")
    if bisect_rows and (changes or without_rows or wants_pdb or debugpy or until or save):
        raise click.UsageError("--bisect-rows goes with --step, --metric and --factor alone")
    from hostcore.runs.find import find_run

    directory = find_run(run, runs)
    options = _Options(
        step=step,
        until=until,
        rank=rank,
        pdb=wants_pdb,
        debugpy=debugpy or 0,
        changes=changes,
        without=without_rows,
        save=save,
        metric=metric,
        factor=factor,
        as_json=as_json,
    )
    if finds_spikes:
        _list_spikes(directory, options)
    elif bisect_rows:
        _bisect(directory, options)
    else:
        _debug(directory, options)


def _debug(directory: "RunDirectory", options: _Options) -> None:
    from hostcore_debug.replay import DebuggerLeft, ReplayRequest, replay
    from hostcore_debug.spikes import replacements
    from hostcore_debug.steps import step_number
    from hostcore_hookspecs import HostcoreError

    assert options.step is not None
    step = step_number(options.step, directory)
    until = options.until or step
    if until < step:
        raise click.UsageError(f"--until {until} is before --step {step}")
    step_number(str(until), directory)
    if options.pdb:
        _require_one_rank(directory)
    if options.debugpy:
        _require_debugpy(options.debugpy)
    if options.save is not None and options.save.exists():
        raise HostcoreError(f"{options.save} exists already", hint="--save makes a folder: name a new one")
    rows = _rows_of(directory, needed=bool(options.without))
    if rows is not None:
        rows.check_rank(options.rank)
    replaced: list[int] = []
    if options.without and rows is not None:
        numbers = rows.numbers(step).tolist()
        without = [_number_in(one, numbers, step, rows) for one in options.without]
        if len(set(without)) == len(numbers):
            raise HostcoreError("--without-rows leaves no row of the step")
        replaced = list(replacements(without, numbers))
    request = ReplayRequest(
        step=step,
        until=until,
        changes=options.changes,
        without=replaced,
        pdb=options.pdb,
        debugpy=options.debugpy,
        keeps=options.save is not None,
    )
    with tempfile.TemporaryDirectory(prefix="hostcore-debug-") as scratch:
        try:
            found = replay(directory, request, Path(scratch))
        except DebuggerLeft as error:
            echo(error.message)
            sys.exit(1)
        places = rows.places_of(rows.numbers(step, options.rank).tolist()) if rows is not None else None
        if options.save is not None:
            _save(options.save, found.directory.path, rows, step)
    if options.as_json:
        print_json(_document(step, request, found, places))
    else:
        _print(directory, step, request, found, places, unit=rows.unit if rows is not None else "")
    if found.different is not None or (found.error is not None and found.steps < until - found.begun_from):
        sys.exit(1)


def _rows_of(directory: "RunDirectory", *, needed: bool) -> "RunRows | None":
    """Return the rows of a run; None for a run that trains on none, unless they are needed.

    :raises InvalidData: The data is missing or has changed.
    """
    from hostcore_debug.run_rows import NoRows, RunRows

    try:
        return RunRows(directory)
    except NoRows:
        if needed:
            raise
        return None


def _number_in(named: str, numbers: Sequence[int], step: int, rows: "RunRows") -> int:
    from hostcore_hookspecs import HostcoreError

    file, colon, row = named.rpartition(":")
    if not colon or not row.isdecimal():
        raise click.BadParameter(f"{named!r} is not FILE:ROW, such as train.parquet:4711", param_hint="--without-rows")
    number = rows.number_of(file, int(row))
    if number not in numbers:
        raise HostcoreError(f"{named} is no row of step {step:,}", hint="`hostcore rows RUN --step N` lists them")
    return number


def _require_one_rank(directory: "RunDirectory") -> None:
    from hostcore.runs.record import RunRecord
    from hostcore_hookspecs import HostcoreError

    ranks = RunRecord.read(directory.record).world_size
    if ranks > 1:
        raise HostcoreError(
            f"--pdb needs a run of one rank, and this run has {ranks}", hint="--debugpy PORT stops the first rank"
        )
    if not sys.stdin.isatty():
        raise HostcoreError("--pdb needs a terminal", hint="--debugpy PORT waits for an editor")


def _require_debugpy(port: int) -> None:
    import socket

    from hostcore_hookspecs import HostcoreError

    if find_spec("debugpy") is None:
        raise HostcoreError("--debugpy needs debugpy, which is not installed", hint="pip install debugpy")
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise HostcoreError(
            f"port {port} of this machine cannot be used: {error.strerror or error}", hint="name another with --debugpy"
        ) from error
    echo(f"waiting for an editor at 127.0.0.1:{port} before the step", err=True)


def _document(step: int, request: "ReplayRequest", found: "Replayed", places: "Places") -> dict[str, Any]:
    looked_at = {one["step"]: one for one in found.measured}
    own = looked_at.get(step, {})
    document = {
        "step": step,
        "replayed": {
            "from": found.begun_from,
            "steps": found.steps,
            "compared": found.compared,
            "equal": found.different is None if request.is_replay else None,
            "first_different": None if found.different is None else attrs.asdict(found.different),
            "causes": list(found.causes),
        },
        "what_if": not request.is_replay,
        "metrics": dict(found.metrics.get(step, {})),
        "rows": None if places is None else [attrs.asdict(one) for one in places],
        "gradients": own.get("gradients"),
        "updates": own.get("updates"),
        "seconds": own.get("seconds"),
        "peak_memory_bytes": own.get("peak_memory_bytes"),
        "error": found.error,
    }
    if request.until > step:
        later = range(step, request.until + 1)
        document["steps"] = [
            {"metrics": dict(found.metrics.get(one, {})), "step": one, **looked_at.get(one, {})} for one in later
        ]
    return document


def _print(
    directory: "RunDirectory",
    step: int,
    request: "ReplayRequest",
    found: "Replayed",
    places: "Places",
    *,
    unit: str,
) -> None:
    began = f"checkpoint {found.begun_from:,}" if found.begun_from else "the beginning: no checkpoint is before"
    echo(f"{found.steps:,} steps of {directory.run_id} replayed from {began}")
    _print_proof(request, found)
    for one in range(step, request.until + 1):
        echo()
        _print_step(one, found)
    if places is not None:
        echo()
        files = sorted({one.file for one in places})
        shown = ", ".join(f"{one.row}" for one in places[:_LISTED]) + ("…" if len(places) > _LISTED else "")
        where = Path(files[0]).name if len(files) == 1 else f"{len(files)} files"
        echo(f"{unit or 'rows'} of step {step:,}: {len(places):,} of {where}: {shown}")
        echo(f"their contents: hostcore rows {directory.run_id} --step {step} --show 5")
    if found.error is not None:
        echo()
        echo(style(f"not finished: {found.error.get('message')}", fg="red"))


def _print_proof(request: "ReplayRequest", found: "Replayed") -> None:
    if not request.is_replay:
        echo(style("what if: something was changed, so nothing is compared with the run", fg="yellow"))
    elif found.different is not None:
        one = found.different
        echo(style("the replay DIFFERS from the run", fg="red", bold=True))
        echo(f"  first at step {one.step:,}: {one.metric} is {one.replayed!r} and was {one.recorded!r}")
        why = "; ".join(found.causes) or "nothing known is different: the training depends on something unseeded"
        echo(f"  {'known to differ' if found.causes else 'cause'}: {why}")
    elif found.compared:
        echo(style(f"{found.compared:,} steps are equal to the recorded ones, bit for bit", fg="green"))
    else:
        echo(style("the run recorded none of these steps, so nothing was compared", fg="yellow"))


def _print_step(step: int, found: "Replayed") -> None:
    own: Mapping[str, Any] = next((one for one in found.measured if one["step"] == step), {})
    values = [
        (name, "not finite" if one is None else f"{one:.6g}") for name, one in found.metrics.get(step, {}).items()
    ]
    if own:
        values += [
            ("time", f"{own['seconds'] * 1000:,.1f} ms"),
            ("memory", f"{own['peak_memory_bytes'] / 2**20:,.0f} MiB"),
        ]
    print_table([f"STEP {step:,}", ""], values)
    gradients, updates = own.get("gradients") or {}, own.get("updates") or {}
    if gradients:
        largest = sorted(gradients, key=lambda name: -(gradients[name] or 0.0))[:_LISTED]
        echo()
        lines = [(name, _figure(gradients[name]), _figure(updates.get(name))) for name in largest]
        print_table(["MODULE", "GRADIENT", "UPDATE"], lines)
        if len(gradients) > _LISTED:
            echo(f"… and {len(gradients) - _LISTED:,} more: --json lists all")


def _figure(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _save(folder: Path, replayed: Path, rows: "RunRows | None", step: int) -> None:
    import shutil

    from pyarrow import parquet

    folder.mkdir(parents=True)
    if rows is not None:
        parquet.write_table(rows.contents(rows.numbers(step).tolist()), folder / "rows.parquet")
    shutil.copytree(replayed, folder / replayed.name)


def _list_spikes(directory: "RunDirectory", options: _Options) -> None:
    found = _spikes(directory, options)
    if options.as_json:
        rows = _rows_of(directory, needed=False)
        document = []
        for one in found:
            places = rows.places_of(rows.numbers(one.step, options.rank).tolist()) if rows is not None else None
            listed = None if places is None else [attrs.asdict(place) for place in places]
            document.append({"step": one.step, "value": one.value, "median": one.median, "rows": listed})
        print_json({"metric": options.metric, "factor": options.factor, "spikes": document})
        return
    if found:
        lines = [(one.step, _figure(one.value), _figure(one.median), f"{one.times:.1f}") for one in found[:_LISTED]]
        print_table(["STEP", options.metric.upper(), "MEDIAN BEFORE", "TIMES"], lines)
        if len(found) > _LISTED:
            echo(f"… and {len(found) - _LISTED:,} more: --json lists all")
        echo(f"\nthe rows that make it: hostcore debug {directory.run_id} --step {found[0].step} --bisect-rows")
    else:
        echo(f"no {options.metric} is above {options.factor:g} times the median of the 50 values before")


def _spikes(directory: "RunDirectory", options: _Options) -> "list[Spike]":
    from hostcore.runs.recorded import recorded_steps
    from hostcore_debug.spikes import spikes
    from hostcore_hookspecs import HostcoreError

    recorded = recorded_steps(directory.events)
    known = sorted({name for one in recorded.values() for name in one.metrics})
    if options.metric not in known:
        raise HostcoreError(
            f"the run {directory.run_id!r} recorded no {options.metric!r}",
            hint=f"--metric takes: {', '.join(known)}" if known else None,
        )
    return spikes(recorded, options.metric, options.factor)


def _bisect(directory: "RunDirectory", options: _Options) -> None:
    from hostcore_debug.bisection import bisect_rows
    from hostcore_debug.steps import step_number
    from hostcore_hookspecs import HostcoreError

    assert options.step is not None
    step = step_number(options.step, directory)
    spike = next((one for one in _spikes(directory, options) if one.step == step), None)
    if spike is None:
        raise HostcoreError(
            f"step {step:,} is no spike of {options.metric}",
            hint="`hostcore debug RUN --spikes` lists them; --factor K asks for less",
        )
    rows = _rows_of(directory, needed=True)
    assert rows is not None
    found, trials = bisect_rows(directory, rows, step, metric=options.metric, threshold=options.factor * spike.median)
    places = rows.places_of(found)
    if options.as_json:
        print_json({"step": step, "trials": trials, "rows": [attrs.asdict(one) for one in places]})
        return
    noun = "this row makes" if len(places) == 1 else f"these {len(places)} rows make"
    echo(f"{noun} the spike of step {step:,} (found in {trials} trials):")
    print_table(["FILE", "ROW GROUP", "ROW"], rows.lines(places))
