"""Removing runs: what is listed first, what is removed, and what never is."""

from pathlib import Path
from typing import Any

from waiting import wait_until

DATA = {"source": "mock", "num_rows": 100, "batch_size": 10}


def run_to_end(project: Any, *run_ids: str) -> None:
    for run_id in run_ids:
        done = project.command("run", project.job(f"{run_id}.json", run_id=run_id, dataset=DATA, epochs=1))
        assert done.code == 0, done.err


def test_a_run_is_listed_first_and_removed_with_yes(project: Any) -> None:
    run_to_end(project, "gone", "stays")
    listed = project.command("rm", "gone", "--json")
    assert (listed.code, listed.json["removed"]) == (0, False)
    (row,) = listed.json["runs"]
    files = [path for path in project.run("gone").path.rglob("*") if path.is_file()]
    assert (row["run_id"], row["bytes"]) == ("gone", sum(path.stat().st_size for path in files))
    assert "nothing was removed: --yes does it" in project.command("rm", "gone").err
    assert project.run("gone").path.is_dir()

    assert project.command("rm", "gone", "--yes").code == 0
    listed_runs = [run["run_id"] for run in project.command("list", "--json").json["runs"]]
    assert "stays" in listed_runs
    assert "gone" not in listed_runs
    assert not [path for path in (project.path / "runs").iterdir() if "gone" in path.name]
    assert project.command("rm", "gone", "--yes").code == 2


def test_a_running_run_is_never_removed_nor_others_beside_it(project: Any) -> None:
    run_to_end(project, "over")
    until = project.path / "until"
    keys = {"dataset": DATA, "epochs": 1, "hyperparams": {"until": str(until)}}
    living = project.start("run", project.job("living.json", run_id="living", **keys))
    wait_until((project.run("living").path / "config" / "run.json").exists, "the run")
    refused = project.command("rm", "over", "living", "--yes", "--json")
    (error,) = refused.json["errors"]
    assert (refused.code, error["code"]) == (2, "run.conflict")
    assert "`hostcore cancel living` ends it" in error["hint"]
    assert project.run("over").path.is_dir()

    def collected() -> list[str]:
        return [run["run_id"] for run in project.command("gc", "--older-than", "1s", "--json").json["runs"]]

    wait_until(lambda: "over" in collected(), "a second since the end")
    assert "living" not in collected()
    assert project.command("gc", "--older-than", "9d", "--json").json["runs"] == []
    assert project.command("gc", "--older-than", "1s", "--yes").code == 0
    assert not project.run("over").path.exists()
    assert project.run("living").path.is_dir()
    until.touch()
    assert living.end().code == 0


def test_what_a_link_leads_to_is_not_removed(project: Any, tmp_path: Path) -> None:
    run_to_end(project, "linked")
    elsewhere = project.run("linked").path.rename(tmp_path / "linked")
    project.run("linked").path.symlink_to(elsewhere)
    refused = project.command("rm", "linked", "--yes", "--json")
    assert (refused.code, refused.json["errors"][0]["code"]) == (2, "run.conflict")
    assert (elsewhere / "result.json").is_file()


def test_an_age_that_is_none_is_a_wrong_use(project: Any) -> None:
    assert project.command("gc", "--older-than", "soon").code == 2
