"""What shells are offered for the sweeps in a line that is being written, and what a mistyped command is told."""

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from hostcore.cli import cli


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("sweep status ", ["run-1", "slow-1", "slow-2"]),
        ("sweep report sl", ["slow-1", "slow-2"]),
        ("sweep run sw", ["file"]),
        ("sweep sl", ["slow-1", "slow-2"]),
        ("sweep st", ["status"]),
        ("sweep sw", ["file"]),
        ("sweep sweep.json --dry", ["--dry-run"]),
    ],
)
def test_are_the_ones_that_there_are_or_files(
    line: str, choices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTCORE_SWEEPS_DIR", str(tmp_path))
    for name in ("slow-2", "slow-1", "run-1", "slow $(touch oops)"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").touch()
    (tmp_path / "slow-none").mkdir()
    *words, last = line.split(" ")
    found = ShellComplete(cli, {}, "hostcore", "_HOSTCORE_COMPLETE").get_completions(words, last)
    assert [one.value if one.type == "plain" else one.type for one in found] == choices


def test_a_mistyped_command_is_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTCORE_SWEEPS_DIR", str(tmp_path))
    told = CliRunner().invoke(cli, ["sweep", "staus", "walk"])
    assert told.exit_code == 2
    assert "No such command 'staus'. Did you mean 'status'?" in told.output
    (tmp_path / "best2").mkdir()
    assert "is no sweep" in CliRunner().invoke(cli, ["sweep", "best2"]).output
