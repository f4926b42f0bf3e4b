"""The command, called in this process; and in one of its own, to see what it imports."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import Said

from hostcore.cli import cli


@pytest.fixture
def hostcore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """``hostcore("list", "--json")``, in an empty folder."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        result = CliRunner().invoke(cli, arguments, prog_name="hostcore", catch_exceptions=False)
        return Said(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., set[str]]:
    """``imported("--help")``: the top-level modules that the command has imported when it is done."""
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from hostcore.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*{name.partition('.')[0] for name in set(sys.modules) - before}, file=sys.stderr)\n"
    )

    def call(*arguments: str) -> set[str]:
        run = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return set(run.stderr.splitlines()[-1].split())

    return call
