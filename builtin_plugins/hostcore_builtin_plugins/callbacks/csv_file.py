"""A CSV file of metrics: a row for each step, a column for each metric, in the order in which they first came."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from hostcore_hookspecs import FatalError

_STEP: Final = "step"

#: A step and its metrics.
Row = tuple[int, Mapping[str, float]]


class CsvFile:
    """Written by one process. Whole after every row; what a dead writer left half-written is dropped when it opens.

    :param path: Where it is; made, with its folder, when there is a first row.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[str] = []
        #: For rows at its end; None until the first.
        self._file: TextIO | None = None
        #: The step of the last row; 0 without rows.
        self.last_step = 0

    def open(self, *, until: int) -> None:
        """Go on with what an earlier attempt wrote: rows of later steps are removed.

        :raises FatalError: When it cannot be read or written.
        """
        with _reaching(self._path):
            if not self._path.exists():
                return
            self._columns, rows, torn = self._read()
            kept = [row for row in rows if int(row[0]) <= until]
            if torn or len(kept) < len(rows):
                self._replace(kept)
            self.last_step = int(kept[-1][0]) if kept else 0

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, in the order of their steps. They take the place of rows that are not older.

        :raises FatalError: When it cannot be written.
        """
        if not rows:
            return
        new = dict.fromkeys(name for _, metrics in rows for name in metrics if name not in self._columns)
        with _reaching(self._path):
            if new or rows[0][0] <= self.last_step:
                old = self._read()[1] if self._path.exists() else []
                self._columns += new
                first = rows[0][0]
                self._replace([*(row for row in old if int(row[0]) < first), *self._cells(rows)])
            else:
                if self._file is None:
                    self._file = self._path.open("a", encoding="utf-8", newline="")
                self._file.write(_lines(self._cells(rows)))
                self._file.flush()
        self.last_step = rows[-1][0]

    def close(self) -> None:
        """Let go of the file; a further row opens it again."""
        file, self._file = self._file, None
        if file is not None:
            with _reaching(self._path):
                file.close()

    def _cells(self, rows: Sequence[Row]) -> Iterator[list[str]]:
        for step, metrics in rows:
            # repr gives the shortest text that is read back as the same number, and nan, inf, -inf.
            yield [str(step), *(repr(metrics[name]) if name in metrics else "" for name in self._columns)]

    def _read(self) -> tuple[list[str], list[list[str]], bool]:
        """Columns, rows, and whether there is anything else in it: half a line, or what a hand has added."""
        text = self._path.read_text(encoding="utf-8", errors="replace")
        whole = text[: text.rfind("\n") + 1]
        header, *rows = list(csv.reader(io.StringIO(whole, newline=""))) or [[]]
        if header[:1] != [_STEP]:
            return [], [], True
        good = [row for row in rows if row and row[0].isdecimal() and len(row) <= len(header)]
        return header[1:], good, len(good) < len(rows) or len(whole) < len(text)

    def _replace(self, rows: Iterable[Sequence[str]]) -> None:
        """Write the file anew; readers see the old one or the new one."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        width = len(self._columns) + 1
        written = self._path.with_name(f".{self._path.name}.writing")
        with written.open("w", encoding="utf-8", newline="") as file:
            file.write(_lines([[_STEP, *self._columns]]))
            file.write(_lines([*row, *[""] * (width - len(row))] for row in rows))
        written.replace(self._path)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


@contextmanager
def _reaching(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalError(
            f"csv-metrics cannot write its file: {error.strerror or error}",
            file=str(error.filename or path),
            hint="make room, or leave csv-metrics out of the job's callbacks; the event log has the same numbers",
        ) from error
