"""Writes scikit-learn's digits as Parquet: ``python -m digits.prepare_data --out DIR``.

Of every five images of a digit, in the order of the package, three go to ``train.parquet``, one to
``validation.parquet`` and one to ``test.parquet``: always the same ones, and each file has its share of each digit. A
file that is there already is left as it is.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from digits.model import SIDE
from hostcore_hookspecs import HostcoreError

IMAGE: Final = "image"
LABEL: Final = "label"
SCHEMA: Final = pa.schema(
    [
        pa.field(IMAGE, pa.list_(pa.uint8(), SIDE * SIDE), nullable=False),  # row by row from the top; 0 to 16
        pa.field(LABEL, pa.uint8(), nullable=False),
    ]
)
#: The file of the n-th image of a digit is number n modulo 5 of these.
_TURNS: Final = ("train", "train", "train", "validation", "test")
#: The host reads and shuffles by row group; see its page on the order of the data.
_ROW_GROUP_ROWS: Final = 64


def prepare(out: Path) -> dict[str, int]:
    """Write ``train.parquet``, ``validation.parquet`` and ``test.parquet``.

    :param out: The folder to write to; made if need be.
    :return: The number of images by file name.
    :raises HostcoreError: When scikit-learn is not installed, or a file cannot be written.
    """
    images, labels = _digits()
    seen: Counter[int] = Counter()
    chosen: dict[str, list[int]] = {part: [] for part in _TURNS}
    for row, label in enumerate(labels):
        chosen[_TURNS[seen[label] % len(_TURNS)]].append(row)
        seen[label] += 1
    table = pa.table({IMAGE: images, LABEL: labels}, schema=SCHEMA)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for part, rows in chosen.items():
            _write(table.take(rows), out / f"{part}.parquet")
    except OSError as error:
        raise HostcoreError(f"cannot write the digits: {error}", file=str(out)) from error
    return {f"{part}.parquet": len(rows) for part, rows in chosen.items()}


def _digits() -> tuple[list[list[int]], list[int]]:
    """The pixels of each image, and which digit it is."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise HostcoreError(
            f"the package scikit-learn, which has the digits, cannot be imported: {error}",
            hint="Run: pip install scikit-learn",
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    return pixels.astype("uint8").tolist(), labels.tolist()


def _write(table: pa.Table, path: Path) -> None:
    """Write a file, whole or not at all, unless it has these rows: a resumed run needs its data untouched."""
    try:
        if pq.read_table(path).equals(table):
            return
    except (FileNotFoundError, pa.ArrowException):
        pass  # it is not there yet, or was not written by this module
    partial = path.with_name(f".{path.name}.partial")
    pq.write_table(table, partial, row_group_size=_ROW_GROUP_ROWS)
    partial.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line.

    :return: The exit code: 2 after an error that the user can mend.
    """
    parser = argparse.ArgumentParser(
        prog="python -m digits.prepare_data", description="Write scikit-learn's handwritten digits as Parquet."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write to")
    options = parser.parse_args(arguments)
    try:
        for name, count in prepare(options.out).items():
            print(f"{options.out / name}: {count:,} images")
    except HostcoreError as error:
        print(f"error: {error.message}", *([f"hint: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
