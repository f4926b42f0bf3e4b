"""Completion in a real bash; that in zsh is in ``tests/e2e``."""

from pathlib import Path

from shell import Shell

from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord


def test_bash_completes_commands_runs_plugins_and_files(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "runs" / "delay-1")
    directory.make()
    RunRecord(job={"trainer": "mine"}, job_dir="/").write(directory.record)
    (tmp_path / "job-one.json").touch()
    shell = Shell.start("bash", tmp_path)
    try:
        assert shell.completed("hostcore stat") == "hostcore status"
        assert shell.completed("hostcore status del") == "hostcore status delay-1"
        assert shell.completed("hostcore plugins show termi") == "hostcore plugins show terminal"
        assert shell.completed("hostcore run job-o") == "hostcore run job-one.json"
    finally:
        shell.close()
