"""The command, called in this process; and in one of its own, to see what it imports."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from hostcore.cli import cli


@attrs.frozen(kw_only=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


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
        "from hostcore.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
    )

    def call(*arguments: str) -> set[str]:
        run = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return set(run.stderr.splitlines()[-1].split())

    return call
