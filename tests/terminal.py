"""What a command shows on a terminal."""

import os
import pty
import termios
from collections.abc import Mapping
from pathlib import Path

import attrs
from fork_server import hostcore
from pexpect.fdpexpect import fdspawn


@attrs.frozen(kw_only=True)
class Shown:
    """What a command has shown on a terminal, as the terminal gets it."""

    code: int
    text: str


def on_terminal(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 600) -> Shown:
    """Run the command on a terminal that is wide enough for every line, and wait for its end."""
    variables = {**(os.environ if env is None else env), "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (60, 1000))
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "r+b", buffering=0) as its_side:
        streams = {"stdin": its_side, "stdout": its_side, "stderr": its_side}
        process = hostcore(arguments, cwd=cwd, env=variables, start_new_session=True, **streams)
        its_side.close()
        text = fdspawn(terminal, timeout=timeout, encoding="utf-8").read()
        return Shown(code=process.wait(timeout), text=text)
