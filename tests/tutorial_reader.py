"""Somebody who follows a page of the documentation: its files, typed in as they stand, and its commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
from command_line import Said, said_by
from fork_server import popen

_FILE = re.compile(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", re.DOTALL)
#: Into a folder instead of an environment; what a package needs is here already.
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]


def files_of(text: str) -> list[tuple[str, str]]:
    """The files that a page shows, in its order: name and content."""
    return _FILE.findall(text)


@attrs.frozen
class Reader:
    """A reader with a folder, and a place that packages are installed to."""

    text: str
    folder: Path
    site: Path

    def type_in(self) -> None:
        """Make the files of the page."""
        self.folder.mkdir()
        for name, content in files_of(self.text):
            (self.folder / name).write_text(content)

    def install(self) -> None:
        subprocess.run([*PIP, "--upgrade", "--target", str(self.site), str(self.folder)], check=True)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return popen(
            [sys.executable, "-c", "from hostcore.cli import main; main()", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.site)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hostcore(self, *arguments: str) -> Said:
        return said_by(self.start(*arguments))

    def shown(self, name: str) -> str:
        """What a console block shows below its last prompt or ``^C``."""
        block = re.search(rf":name: {name}\n\n(.*?)```", self.text, re.DOTALL)
        assert block, name
        return re.split(r"^(?:\$ .*|\^C)\n", block[1], flags=re.MULTILINE)[-1]
