"""Writes a text as rows of bytes, in Parquet: ``python -m char_lm.prepare_data --out DIR``.

The text is the language reference that every CPython brings for ``help()``, or a file of yours (``--text``). The first
nine tenths of it go to ``train.parquet``, the next half tenth to ``validation.parquet``, the rest to ``test.parquet``.
A file that is there already is left as it is.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hostcore_hookspecs import HostcoreError

TOKENS: Final = "tokens"
#: Bytes in a row that are predicted. One more goes before them, the last of the row before.
ROW_BYTES: Final = 256
SCHEMA: Final = pa.schema([pa.field(TOKENS, pa.list_(pa.uint8(), ROW_BYTES + 1), nullable=False)])

#: Where the parts of the text end, as shares of it.
_ENDS: Final = {"train": 0.9, "validation": 0.95, "test": 1.0}
#: The host reads and shuffles by row group; see its page on the order of the data.
_ROW_GROUP_ROWS: Final = 64


@attrs.frozen(kw_only=True)
class Prepared:
    """Sizes of the written files, and a baseline."""

    #: Bytes that are predicted, by file name.
    sizes: dict[str, int]
    #: What predicting each byte of the test by how often it occurs in the training data costs, in bits.
    unigram_bits_per_byte: float


def prepare(out: Path, text: Path | None = None) -> Prepared:
    """Write ``train.parquet``, ``validation.parquet`` and ``test.parquet``.

    :param out: The folder to write to; made if need be.
    :param text: The file to read; None for the language reference of Python.
    :raises HostcoreError: When the text cannot be read or is too short, or a file cannot be written.
    """
    content = np.frombuffer(_read(text) if text else language_reference().encode(), dtype=np.uint8)
    parts, start = {}, 0
    for part, end in _ENDS.items():
        stop = int(end * len(content))
        parts[part] = _rows(content[start:stop])
        start = stop
    if not all(len(rows) for rows in parts.values()):
        raise HostcoreError(
            f"the text has {len(content):,} bytes: too few to fill a row of {ROW_BYTES} in each part",
            file=str(text) if text else None,
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            _write(rows, out / f"{part}.parquet")
    except OSError as error:
        raise HostcoreError(f"cannot write the prepared text: {error}", file=str(out)) from error
    return Prepared(
        sizes={f"{part}.parquet": len(rows) * ROW_BYTES for part, rows in parts.items()},
        unigram_bits_per_byte=_unigram_bits(parts["train"], parts["test"]),
    )


def language_reference() -> str:
    """Return the text of ``help()`` on Python's syntax and types: 374,000 characters of English in CPython 3.11.7.

    Many paragraphs belong to several topics. Each is taken once: otherwise the test would ask for what was learned by
    heart.

    :raises HostcoreError: When this Python was packaged without it.
    """
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as error:
        raise HostcoreError("this Python comes without the text that help() shows", hint="Give a --text.") from error
    paragraphs = (paragraph.strip("\n") for topic in topics.values() for paragraph in topic.split("\n\n"))
    unique = {" ".join(paragraph.split()): paragraph for paragraph in paragraphs}
    return "\n\n".join(unique.values())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HostcoreError(f"cannot read the text: {error}", file=str(path)) from error


def _rows(content: np.ndarray) -> np.ndarray:
    """(rows, 257), uint8: a row begins with the last byte of the one before. What does not fill a row is left out."""
    count = max(0, len(content) - 1) // ROW_BYTES
    starts = np.arange(count)[:, None] * ROW_BYTES
    rows: np.ndarray = content[starts + np.arange(ROW_BYTES + 1)]
    return rows


def _unigram_bits(train: np.ndarray, test: np.ndarray) -> float:
    counts = np.bincount(train[:, 1:].ravel(), minlength=256) + 1  # so that no byte is impossible
    occurrences = np.bincount(test[:, 1:].ravel(), minlength=256)
    return float(-(occurrences @ np.log(counts / counts.sum())) / occurrences.sum() / math.log(2))


def _write(rows: np.ndarray, path: Path) -> None:
    """Write a file, whole or not at all, unless it has these rows: a resumed run needs its data untouched."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), ROW_BYTES + 1)
    table = pa.table([column], schema=SCHEMA)
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
        prog="python -m char_lm.prepare_data", description="Write a text as rows of bytes, in Parquet."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write to")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="the text (default: Python's language reference, as help() shows it)"
    )
    options = parser.parse_args(arguments)
    try:
        prepared = prepare(options.out, options.text)
    except HostcoreError as error:
        place = f"{error.file}: " if error.file else ""
        print(f"error: {place}{error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2
    for name, size in prepared.sizes.items():
        print(f"{options.out / name}: {size:,} bytes to predict")
    print(f"by their frequency alone, those of the test cost {prepared.unigram_bits_per_byte:.2f} bits each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
