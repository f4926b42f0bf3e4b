"""A shell on a terminal, in which a person writes lines and presses Tab."""

import os
from pathlib import Path

import attrs
import pexpect
from command_line import COMMAND

_PROMPT = "ready> "
#: Keys: to the begin of the line.
_HOME = "\x01"

_BASH = ("bash", ["--norc", "--noprofile", "-i"], ("bind 'set enable-bracketed-paste off'", f"PS1='{_PROMPT}'"))
_ZSH = ("zsh", ["-f", "-i"], ("autoload -Uz compinit; compinit -u -D", "bindkey -e; unsetopt zle_bracketed_paste"))


@attrs.frozen
class Shell:
    """A shell that completes ``hostcore`` as its user's start-up file would have it."""

    process: "pexpect.spawn[str]"

    @classmethod
    def start(cls, name: str, folder: Path) -> "Shell":
        """Start it in a folder."""
        program, arguments, lines = {"bash": _BASH, "zsh": _ZSH}[name]
        path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
        unset = ("HOSTCORE_RUNS_DIR", "HOSTCORE_SERVER", "PROMPT_COMMAND", "ZDOTDIR")
        kept = {key: value for key, value in os.environ.items() if key not in unset}
        env = {**kept, "PATH": path, "HOME": str(folder), "TERM": "vt100", "PS1": _PROMPT}
        process = pexpect.spawn(
            program, arguments, cwd=folder, env=env, encoding="utf-8", timeout=300, dimensions=(40, 300)
        )
        shell = cls(process)
        for line in (*lines, f'eval "$(_HOSTCORE_COMPLETE={name}_source hostcore)"'):
            process.sendline(line)
        return shell

    def completed(self, line: str) -> str:
        """The line that is there after Tab.

        The keys behind Tab are read when the shell has done it: they have the shell print the line in place of running
        it.
        """
        self.process.send(f"{line}\t{_HOME}echo 'line is': \r")
        self.process.expect(r"\nline is: (.*?)\r?\n")
        assert self.process.match is not None
        return str(self.process.match[1]).rstrip()

    def close(self) -> None:
        """End it."""
        self.process.close(force=True)
