"""The installed command, and what it said."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
import pexpect

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


@attrs.frozen(kw_only=True)
class Shown:
    """What a command has shown on a terminal, as the terminal gets it."""

    code: int
    text: str


def said_by(process: "subprocess.Popen[str]", *, timeout: float = 180) -> Said:
    """Wait for the end of a command."""
    out, err = process.communicate(timeout=timeout)
    return Said(code=process.returncode, out=out, err=err)


def on_terminal(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 180) -> Shown:
    """Run the command on a terminal that is wide enough for every line, and wait for its end."""
    variables = {**(os.environ if env is None else env), "TERM": "xterm-256color"}
    terminal = pexpect.spawn(
        COMMAND, list(arguments), cwd=str(cwd), env=variables, dimensions=(60, 1000), timeout=timeout, encoding="utf-8"
    )
    text = terminal.read()
    terminal.close()
    return Shown(code=terminal.exitstatus, text=text)
