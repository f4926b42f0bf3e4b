"""The installed command, in processes of its own."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from command_line import COMMAND


@attrs.frozen
class Cold:
    """The command, started."""

    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, runs_dir: Path, job: Mapping[str, Any]) -> "Cold":
        """Start it in the folder above the runs, where the trainer lies. What it prints is in a file among the runs."""
        path = runs_dir.parent / f"{job['run_id']}.json"
        path.write_text(json.dumps(job))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        with (runs_dir / f"{job['run_id']}.out").open("ab") as output:
            process = subprocess.Popen(
                [COMMAND, "run", path.name], cwd=path.parent, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        return cls(process)

    @property
    def workers(self) -> list[int]:
        """The processes that it has started and that have not ended."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            return [int(pid) for pid in path.read_text().split()]
        except OSError:  # it is gone itself
            return []


def is_gone(pid: int) -> bool:
    """Whether a process has ended; if nobody has waited for it, it is still in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
