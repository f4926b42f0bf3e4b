"""Faults injected into a run: a line for each fault, in a folder of the run directory. It outlives the process."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson


class FaultRecord:
    """The lines of one writer: a rank, or the uploads.

    ::

        {"fault": "kill@step=10..20", "position": 0, "at": 14, "time_ms": 1764119000000}

    A line is written before the fault is injected, with one call, so that a killed process leaves a whole one.

    :param run_dir: The run directory.
    :param writer: ``rank-0``, or ``uploads``.
    """

    def __init__(self, run_dir: str, writer: str) -> None:
        self._path = Path(run_dir, "chaos", f"{writer}.jsonl")

    def lines(self) -> list[Mapping[str, Any]]:
        """Return the lines of earlier processes, and of this one."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [orjson.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]

    def positions(self) -> set[int]:
        """The faults that were injected, by their places in the job's list."""
        return {line["position"] for line in self.lines() if "position" in line}

    def add(self, **fields: Any) -> None:
        """Append a line."""
        self._path.parent.mkdir(exist_ok=True)
        line = orjson.dumps({**fields, "time_ms": time.time_ns() // 1_000_000}, option=orjson.OPT_APPEND_NEWLINE)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
