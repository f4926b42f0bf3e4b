"""Runs that faults are injected into, looked at as the fault suites do."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from fork_server import ran
from ledger import Ledger, job

from hostcore_chaos.record import FaultRecord

STEPS = 12


@attrs.frozen
class Workshop:
    """A folder with the trainer."""

    folder: Path

    def run(self, of: dict[str, Any], *options: str) -> int:
        """``hostcore run`` to its end; the exit code."""
        (self.folder / "job.json").write_text(json.dumps(of))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        ended = ran(["run", "job.json", *options], cwd=self.folder, env=environment, text=True)
        assert "Traceback" not in ended.stderr, ended.stderr
        return int(ended.returncode)

    def ledger(self, run_id: str) -> Ledger:
        return Ledger(self.folder / "runs" / run_id)

    def injected(self, run_id: str, writer: str = "rank-0") -> list[str]:
        """The faults in the order in which they were injected."""
        lines = FaultRecord(str(self.folder / "runs" / run_id), writer).lines()
        return [line["fault"] for line in lines if "fault" in line]

    def warned(self, run_id: str) -> list[str]:
        """The warnings of the run."""
        return [event["message"] for event in self.ledger(run_id).events if event["event"] == "warning"]


def drill(run_id: str, **keys: Any) -> dict[str, Any]:
    return job(run_id, max_steps=STEPS, checkpoint_every=1, **keys)


def options(faults: Sequence[str]) -> Iterator[str]:
    for fault in faults:
        yield from ("--chaos", fault)
