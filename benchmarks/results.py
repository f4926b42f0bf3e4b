"""What every benchmark writes with ``--json FILE``, so that ``compare.py`` can read it.

A document says which benchmark it is of, with which settings, on which machine, and what each row was in each round::

    {"benchmark": "feed", "settings": {"rows": 2000000},
     "machine": {"cpu": "...", "cores": 2, "python": "3.12.3", "torch": "2.13.0", "date": "...", "commit": "..."},
     "rows": {"hostcore": {"unit": "rows/s", "less_is_better": false, "values": [5.1e6, 5.2e6]}}}

A script calls :func:`add_option` for its option, and :func:`write` once, when it has measured.
"""

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs


class BadResult(Exception):
    """A file that is not a result; the message names it and says what is wrong."""


@attrs.frozen(kw_only=True)
class Row:
    """What one thing was in each round, in its unit."""

    #: None: not measured; the note says why.
    values: list[float] | None
    unit: str
    less_is_better: bool = True
    note: str = ""


@attrs.frozen(kw_only=True)
class Result:
    """All of one run of a benchmark. Results with other settings measure other things."""

    benchmark: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    rows: dict[str, Row]


def add_option(parser: argparse.ArgumentParser) -> None:
    """``--json FILE``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every single result, for compare.py")


def rows(unit: str, values: Mapping[str, Sequence[float]], *, less_is_better: bool = True) -> dict[str, Row]:
    """Rows that have one unit."""
    return {name: Row(values=list(of_row), unit=unit, less_is_better=less_is_better) for name, of_row in values.items()}


def write(file: Path | None, benchmark: str, rows: Mapping[str, Row], /, **settings: Any) -> None:
    """Write a result, if a file was asked for; whole or not at all, so that it can be written anew after each row.

    :param settings: What has to be equal for two results to be compared: sizes, not the number of rounds.
    """
    if file is not None:
        result = Result(benchmark=benchmark, settings=settings, machine=machine(), rows=dict(rows))
        replace(file, json.dumps(attrs.asdict(result), indent=2) + "\n")


def replace(file: Path, text: str) -> None:
    """Write a text file in one go, and make its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.unfinished")
    unfinished.write_text(text)
    unfinished.replace(file)


def read(file: Path) -> Result:
    """Read a result.

    :raises BadResult: It is missing, no JSON, or of another shape.
    """
    try:
        document = json.loads(file.read_text())
        found = Result(**{**document, "rows": {name: Row(**row) for name, row in document["rows"].items()}})
        well_formed = isinstance(found.settings, dict) and isinstance(found.machine, dict)
    except OSError as error:
        raise BadResult(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise BadResult(f"{file}: not JSON: {error}") from None
    except (TypeError, KeyError, AttributeError):
        well_formed = False
    if not well_formed:
        raise BadResult(f"{file}: not what a benchmark writes with --json")
    for name, row in found.rows.items():
        missing = row.values is None and row.note
        if not (missing or (isinstance(row.values, list) and row.values and all(map(_is_number, row.values)))):
            raise BadResult(f"{file}: the values of {name!r} are not a list of finite numbers")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code, and the commit of the code."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("describe", "--always", "--dirty", "--exclude=*"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
