"""Removing runs: what is listed first, what is removed, and what never is."""

import os
import shutil
from pathlib import Path
from typing import Any

from waiting import wait_until

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity

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


def live_lease() -> Lease:
    """A lease of this process, which lives."""
    now = now_ms()
    process = ProcessIdentity.current()
    return Lease(process=process, attempt=1, step=1, last_progress_ms=now, renewed_ms=now)


def test_a_run_that_begins_while_it_is_removed_gets_its_name_back(project: Any) -> None:
    run_to_end(project, "begun")
    directory = RunDirectory(project.run("begun").path)
    before, behind = project.path / "kept", project.path / "runs" / "kept"
    directory.attempts.rename(before)
    shutil.copytree(before, behind)
    claim_attempt(behind, 2, process=ProcessIdentity.current(), started_ms=now_ms())
    # From its place the link leads to what was there, and a level deeper, once the run is set aside, to a new attempt.
    directory.attempts.symlink_to(os.path.relpath(before, directory.attempts.parent))
    refused = project.command("rm", "begun", "--yes", "--json")
    (error,) = refused.json["errors"]
    assert (refused.code, error["code"]) == (2, "run.conflict")
    assert (directory.path / "result.json").is_file()
    assert not list((project.path / "runs").glob(".removing-*"))


def mirrored(project: Any, run_id: str) -> Path:
    """Train a run with a mirror; the ledger of its uploads."""
    keys = {"run_id": run_id, "dataset": DATA, "epochs": 1, "checkpoint_base_uri": f"file://{project.path}/mirror"}
    done = project.command("run", project.job(f"{run_id}.json", **keys))
    assert done.code == 0, done.err
    return Path(project.run(run_id).path / "uploads.jsonl")


def test_a_run_that_owes_uploads_is_refused_until_they_are_made(project: Any) -> None:
    ledger = mirrored(project, "owing")
    assert project.command("rm", "owing", "--json").code == 0
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if '"path":"result.json"' not in line))
    refused = project.command("rm", "owing", "--yes", "--json")
    (error,) = refused.json["errors"]
    assert (refused.code, error["code"]) == (2, "run.conflict")
    assert "has not copied everything, and is not removed: fsspec" in error["message"]
    assert "`hostcore upload owing`" in error["hint"]
    assert project.command("upload", "owing").code == 0
    assert project.command("rm", "owing", "--yes").code == 0
    assert not project.run("owing").path.exists()


def test_a_run_that_owes_a_checkpoint_is_kept_by_gc_and_removed_by_force(project: Any) -> None:
    ledger = mirrored(project, "short")
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if '"checkpoints/' not in line))

    def kept() -> bool:
        said = project.command("gc", "--older-than", "1s", "--json")
        assert "short" not in [run["run_id"] for run in said.json["runs"]]
        return "'short' has not copied everything" in said.err

    wait_until(kept, "a second since the end")
    assert project.command("rm", "short", "--yes").code == 2
    found = project.command("gc", "--older-than", "1s", "--force", "--json").json["runs"]
    assert "short" in [run["run_id"] for run in found]
    assert project.command("rm", "short", "--yes", "--force").code == 0
    assert not project.run("short").path.exists()


def test_checkpoints_that_an_earlier_version_kept_for_their_upload_are_removed_by_force_alone(project: Any) -> None:
    run_to_end(project, "earlier")
    kept = project.run("earlier").path / "spool" / "step-000005.1f2e3d4c5b6a" / "checkpoints"
    kept.mkdir(parents=True)
    refused = project.command("rm", "earlier", "--yes", "--json")
    (error,) = refused.json["errors"]
    assert (refused.code, error["code"]) == (2, "run.conflict")
    assert "checkpoints that an earlier version of hostcore kept for their upload" in error["message"]

    def skipped() -> bool:
        collected = project.command("gc", "--older-than", "1s", "--json")
        assert "earlier" not in [run["run_id"] for run in collected.json["runs"]]
        return "'earlier' has checkpoints that an earlier version" in collected.err

    wait_until(skipped, "a second since the end")
    assert kept.is_dir()
    assert project.command("rm", "earlier", "--yes", "--force").code == 0
    assert not project.run("earlier").path.exists()


def test_what_a_killed_removal_has_left_is_removed_by_gc(project: Any) -> None:
    runs = project.path / "runs"
    for name in ("half", "young"):
        (runs / f".removing-{name}-1" / name / "checkpoints").mkdir(parents=True)
        (runs / f".removing-{name}-1" / name / "checkpoints" / "x").write_text("12345")
    run_to_end(project, "lives")
    (runs / ".removing-lives-1").mkdir()
    (runs / "lives").rename(runs / ".removing-lives-1" / "lives")
    live_lease().write(runs / ".removing-lives-1" / "lives" / "lease.json")
    for name in ("half", "lives"):
        os.utime(runs / f".removing-{name}-1", (1, 1))
    listed = project.command("gc", "--older-than", "9d", "--json").json
    assert [(one["run_id"], one["bytes"]) for one in listed["leftovers"]] == [("half", 5)]
    assert "half removed" in project.command("gc", "--older-than", "9d").out
    assert (runs / ".removing-half-1").is_dir()
    assert project.command("gc", "--older-than", "9d", "--yes").code == 0
    assert sorted(path.name for path in runs.glob(".removing-*")) == [".removing-lives-1", ".removing-young-1"]


def test_an_age_that_is_none_is_a_wrong_use(project: Any) -> None:
    assert project.command("gc", "--older-than", "soon").code == 2
