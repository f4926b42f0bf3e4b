"""``hostcore rows``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory
    from hostcore_debug.conditions import RowCondition
    from hostcore_debug.run_rows import RunRows

_LONGEST_VALUE = 60
#: Rows whose places are listed where none are to be shown.
_LISTED = 20
#: Columns of contents that are the place of the row.
_PLACED = 3


@click.command("rows", short_help="List the rows that a step of a run was trained on.")
@click.argument("run", shell_complete=completion.runs)
@click.option("--step", metavar="N|last", help="The step.")
@click.option("--rank", type=click.IntRange(min=0), help="The rows of this rank alone.")
@click.option("--show", type=click.IntRange(min=1), metavar="N", help="Show the contents of the first N rows.")
@click.option("--where", metavar="'COLUMN OP VALUE'", help="Only rows whose column compares so: 'label == 3'.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE.parquet", help="Write the rows to this file.")
@click.option("--row", metavar="FILE:ROW", help="Instead of --step: the steps that trained on this row.")
@runs_dir_option
@json_option
@reports_errors
def rows_command(
    run: str,
    *,
    step: str | None,
    rank: int | None,
    show: int | None,
    where: str | None,
    save: Path | None,
    row: str | None,
    runs: Path,
    as_json: bool,
) -> None:
    """List the rows that a step of RUN was trained on: file, row group, and row in the file, counted from 0.

    Follows from the order of the data alone, which is a function of the seed: nothing is trained, and only --show,
    --where and --save read rows. With --row the other way round.

    RUN is a run id, the beginning of one, or a run directory. Exits with 2 where the data is missing or has changed.
    """
    if (step is None) == (row is None):
        raise click.UsageError("give either --step N or --row FILE:ROW")
    if row is not None and (rank is not None or show or where or save):
        raise click.UsageError("--rank, --show, --where and --save belong to --step")
    from hostcore.runs.find import find_run
    from hostcore_debug.conditions import RowCondition
    from hostcore_debug.run_rows import RunRows
    from hostcore_debug.steps import last_step

    directory = find_run(run, runs)
    condition = RowCondition.parse(where) if where else None
    rows = RunRows(directory)
    if row is not None:
        _print_visits(rows, row, last_step(directory), as_json=as_json)
        return
    assert step is not None
    _print_rows(rows, directory, step, rank, condition, show=show, save=save, as_json=as_json)


def _print_rows(
    rows: "RunRows",
    directory: "RunDirectory",
    step: str,
    rank: int | None,
    condition: "RowCondition | None",
    *,
    show: int | None,
    save: Path | None,
    as_json: bool,
) -> None:
    from hostcore_debug.steps import step_number

    number = step_number(step, directory)
    rows.check_rank(rank)
    numbers = rows.numbers(number, rank).tolist()
    contents = rows.contents(numbers) if show or condition or save else None
    if contents is not None and condition is not None:
        chosen = condition.matches(contents)
        numbers = [one for one, is_meant in zip(numbers, chosen, strict=True) if is_meant]
        contents = contents.filter(chosen)
    if save is not None:
        _write(contents, save)
    places = rows.places_of(numbers)
    if as_json:
        document: dict[str, Any] = {"step": number, "rank": rank, "rows": [attrs.asdict(one) for one in places]}
        if contents is not None and show:
            document["contents"] = [_shown(one) for one in contents.slice(0, show).to_pylist()]
        print_json(document)
        return
    if contents is not None and show:
        shown = contents.slice(0, show)
        columns = [name.upper() for name in shown.column_names[_PLACED:]]
        values = [[_cut(one) for one in list(line.values())[_PLACED:]] for line in shown.to_pylist()]
        lines = [[*line, *value] for line, value in zip(rows.lines(places), values, strict=False)]
        print_table(["FILE", "ROW GROUP", "ROW", *columns], lines)
    else:
        print_table(["FILE", "ROW GROUP", "ROW"], rows.lines(places[:_LISTED]))
        if len(places) > _LISTED:
            echo(f"… and {len(places) - _LISTED:,} more: --json lists all, --save writes them")
    echo(
        f"\n{len(places):,} row{'s' * (len(places) != 1)} of step {number:,}"
        + (f", rank {rank}" if rank is not None else "")
    )
    if rows.unit:
        echo(f"a row stands for one of the {rows.unit}")
    if save is not None:
        echo(f"written to {save}")


def _print_visits(rows: "RunRows", row: str, until: int, *, as_json: bool) -> None:
    file, colon, number = row.rpartition(":")
    if not colon or not number.isdecimal():
        raise click.BadParameter(f"{row!r} is not FILE:ROW, such as train.parquet:4711", param_hint="--row")
    visits = list(rows.visits(rows.number_of(file, int(number)), until))
    if as_json:
        print_json({"file": file, "row": int(number), "visits": [attrs.asdict(one) for one in visits]})
        return
    if visits:
        print_table(["STEP", "EPOCH", "RANK"], [(one.step, one.epoch, one.rank) for one in visits])
    echo(f"{row} was trained on at {len(visits)} of {until:,} steps")


def _write(rows: Any, file: Path) -> None:
    from pyarrow import parquet

    from hostcore_hookspecs import HostcoreError

    try:
        parquet.write_table(rows, file)
    except OSError as error:
        raise HostcoreError(f"{file} cannot be written: {error.strerror or error}", file=str(file)) from error


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: one.hex() if isinstance(one, bytes) else one for name, one in row.items()}


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
