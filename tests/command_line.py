"""The installed command, and what it said."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import orjson

COMMAND = str(Path(sys.executable).with_name("hostcore"))


@attrs.frozen(kw_only=True)
class Said:
    """What a command has said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return orjson.loads(self.out)


def said_by(process: "subprocess.Popen[str]", *, timeout: float = 600) -> Said:
    """Wait for the end of a command."""
    out, err = process.communicate(timeout=timeout)
    return Said(code=process.returncode, out=out, err=err)
