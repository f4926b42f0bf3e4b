"""What shells are offered for a line that is being written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from hostcore.cli import cli


def offered(line: str) -> list[str]:
    """The choices for the last word of a line, without ``hostcore``; ``file`` or ``dir`` where the shell completes."""
    *words, last = line.split(" ")
    found = ShellComplete(cli, {}, "hostcore", "_HOSTCORE_COMPLETE").get_completions(words, last)
    return [one.value if one.type == "plain" else one.type for one in found]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    monkeypatch.delenv("HOSTCORE_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("stat", ["status"]),
        ("check --jo", ["--job"]),
        ("list --status s", ["submitted", "succeeded"]),
        ("new data", ["data-source"]),
        ("plugins hooks res", ["resolver"]),
        ("run jo", ["file"]),
        ("run job.json --chaos-", ["--chaos-seed"]),
        ("run job.json --se", ["--set", "--server"]),
        ("run job.json --weights w", ["file"]),
    ],
)
def test_commands_options_kinds_and_files_are_offered(line: str, choices: list[str]) -> None:
    assert offered(line) == choices


class TestRuns:
    @pytest.fixture(autouse=True)
    def three(self, run: Callable, tmp_path: Path) -> None:
        """Two runs, and folders that are none, or that no shell is to be given the name of."""
        for age, run_id in enumerate(("delay-2", "delay-1")):
            os.utime(run(run_id, status="succeeded").path, (1000 - age, 1000 - age))
        (tmp_path / "runs" / "delay-none").mkdir()
        run("delay-$(touch oops)", status="succeeded")

    def test_are_offered_newest_first(self) -> None:
        commands = ("cancel", "resume", "verify", "compare delay-1", "replay", "report", "upload", "logs", "logs -f")
        for line in ("status ", "evaluate job.json --checkpoint de", *(f"{command} de" for command in commands)):
            assert offered(line) == ["delay-2", "delay-1"], line

    def test_are_those_of_the_folder_that_the_line_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "runs").rename(tmp_path / "logs")
        assert offered("status ") == []
        assert offered("status --runs-dir logs delay-1") == ["delay-1"]
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", "logs")
        assert offered("status delay-1") == ["delay-1"]

    def test_give_way_to_paths_and_files(self) -> None:
        assert offered("status runs/") == ["dir"]
        assert offered("resume runs/") == ["file"]
        assert offered("resume x") == ["file"]

    def test_of_a_service_are_not_asked_for(self) -> None:
        assert offered("status --server http://127.0.0.1:9 de") == []


class TestPlugins:
    @pytest.fixture(autouse=True)
    def installed(self, site_here: Any) -> None:
        """Plugins that cannot be imported, one of them twice."""
        trainers = {"hostcore.trainers": {"zz-mine": "zz_none:T"}, "hostcore.callbacks": {"zz-other": "zz_none:C"}}
        site_here.install("zz-dist", version="1.2", modules={}, entry_points=trainers)
        site_here.install("zz-more", version="1.3", modules={}, entry_points={"hostcore.trainers": {"zz-mine": "a:b"}})

    def test_are_offered_by_name_with_their_distributions(self) -> None:
        complete = ShellComplete(cli, {}, "hostcore", "_HOSTCORE_COMPLETE")
        found = {one.value: one.help for one in complete.get_completions(["plugins", "show"], "zz-")}
        assert found == {"zz-mine": "zz-dist 1.2, zz-more 1.3", "zz-other": "zz-dist 1.2"}

    @pytest.mark.parametrize(
        ("line", "choices"),
        [
            ("schema zz-", ["zz-mine", "zz-other"]),
            ("check zz-", ["zz-mine", "zz-other"]),
            ("list --plugin zz-", ["zz-mine", "zz-other"]),
            ("list --trainer zz-", ["zz-mine"]),
            ("list --distribution zz-", ["zz-dist", "zz-more"]),
            ("replay a --reporter termi", ["terminal"]),
        ],
    )
    def test_are_those_that_fit(self, line: str, choices: list[str]) -> None:
        assert offered(line) == choices


class TestProfiles:
    @pytest.fixture(autouse=True)
    def job(self) -> None:
        """A job file with profiles of its own and of a file that it includes."""
        Path("base.toml").write_text("[profiles.smoke]\nmax_steps = 1\n[profiles.'no $(name)']\n")
        Path("job.json").write_text('{"include": "base.toml", "profiles": {"small": {}, "big": {}}}')
        Path("wrong.json").write_text("{")

    @pytest.mark.parametrize(
        ("line", "choices"),
        [
            ("run job.json --profile s", ["smoke", "small"]),
            ("run --config job.json --profile b", ["big"]),
            ("validate -v job.json --profile b", ["big"]),
            ("run wrong.json --profile ", []),
            ("run none.json --profile ", []),
            ("run --profile ", []),
        ],
    )
    def test_are_those_of_the_job_file_in_the_line(self, line: str, choices: list[str]) -> None:
        assert offered(line) == choices


def test_a_broken_command_hides_no_other(site_here: Any) -> None:
    site_here.install("zz-dist", modules={}, entry_points={"hostcore.commands": {"stop": "zz_none:command"}})
    assert offered("st") == ["status", "stop"]
    assert offered("stop stat") == ["status"]


def test_a_line_that_is_wrong_is_completed_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("nonsense stat", "status --nonsense -", "list -n many --st", "logs a b c "):
        offered(line)
    assert capsys.readouterr() == ("", "")


def test_a_choice_costs_no_heavy_import(imported: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HOSTCORE_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "hostcore plugins show te")
    monkeypatch.setenv("COMP_CWORD", "3")
    heavy = {"torch", "pyarrow", "cattrs", "rich", "matplotlib", "numpy", "fsspec", "ruamel", "pluggy", "mlflow"}
    assert imported() & heavy == set()
