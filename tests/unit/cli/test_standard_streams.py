"""A command whose standard streams were closed by what has started it."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import COMMAND

#: Opens a file as anything may, prints, and starts a program that inherits the streams.
SCRIPT = """
import pathlib, subprocess, sys
from hostcore.cli.redacting_stream import open_closed_streams

open_closed_streams()
with open("own", "w") as own:
    print("to standard output")
    print("to standard error", file=sys.stderr)
    child = "import sys; sys.stdin.read(); print(1); print(2, file=sys.stderr)"
    code = subprocess.run([sys.executable, "-c", child], check=False).returncode
    own.write(f"{own.fileno() > 2} {sys.stdin is not None} {code}")
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, SCRIPT], cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / "own").read_text() == "True True 0"


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_command_ends_with_the_code_that_it_would_have(tmp_path: Path, closed: str) -> None:
    for arguments, code in (("list", 0), ("validate missing.json", 2)):
        said = subprocess.run(
            ["sh", "-c", f'"$0" {arguments} {closed}', COMMAND], cwd=tmp_path, capture_output=True, check=False
        )
        assert said.returncode == code
