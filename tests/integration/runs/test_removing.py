"""Removing runs: what is listed first, what is removed, and what never is."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity

DATA = {"source": "mock", "num_rows": 100, "batch_size": 10}
JOB = {"dataset": DATA, "epochs": 1}


@pytest.fixture
def ended(run_here: Callable, here: Path) -> Callable[..., Path]:
    """``ended("a")``: the directory of a run that ended two hours ago."""

    def make(run_id: str, **keys: Any) -> Path:
        done = run_here(run_id, **JOB, **keys)
        assert done.code == 0, done.err
        result = json.loads((here / run_id / "result.json").read_text())
        (here / run_id / "result.json").write_text(json.dumps({**result, "ended_ms": now_ms() - 7_200_000}))
        return here / run_id

    return make


def conflict(said: Any) -> dict[str, Any]:
    (error,) = said.json["errors"]
    assert (said.code, error["code"]) == (2, "run.conflict")
    return error


def collected(look: Callable, *options: str) -> tuple[list[str], str]:
    """The runs that ``hostcore gc`` would remove, and its warnings."""
    said = look("gc", "--older-than", "1h", *options, "--json")
    return [run["run_id"] for run in said.json["runs"]], said.err


def test_a_run_is_listed_first_and_removed_with_yes(ended: Callable, look: Callable, here: Path) -> None:
    gone, _ = ended("gone"), ended("stays")
    listed = look("rm", "gone", "--json")
    assert (listed.code, listed.json["removed"]) == (0, False)
    (row,) = listed.json["runs"]
    files = [path for path in gone.rglob("*") if path.is_file()]
    assert (row["run_id"], row["bytes"]) == ("gone", sum(path.stat().st_size for path in files))
    assert "nothing was removed: --yes does it" in look("rm", "gone").err
    assert gone.is_dir()

    assert look("rm", "gone", "--yes").code == 0
    assert [run["run_id"] for run in look("list", "--json").json["runs"]] == ["stays"]
    assert not [path for path in here.iterdir() if "gone" in path.name]
    assert look("rm", "gone", "--yes").code == 2


def test_a_running_run_is_never_removed_nor_others_beside_it(project: Any) -> None:
    job = project.job("over.json", run_id="over", **JOB)
    assert project.command("run", job).code == 0
    until = project.path / "until"
    living = project.start("run", project.job("living.json", run_id="living", **JOB, hyperparams={"until": str(until)}))
    wait_until((project.run("living").path / "config" / "run.json").exists, "the run")
    error = conflict(project.command("rm", "over", "living", "--yes", "--json"))
    assert "`hostcore cancel living` ends it" in error["hint"]
    assert project.run("over").path.is_dir()

    def found() -> list[str]:
        return [run["run_id"] for run in project.command("gc", "--older-than", "1s", "--json").json["runs"]]

    wait_until(lambda: "over" in found(), "a second since the end")
    assert "living" not in found()
    assert project.command("gc", "--older-than", "9d", "--json").json["runs"] == []
    assert project.command("gc", "--older-than", "1s", "--yes").code == 0
    assert not project.run("over").path.exists()
    assert project.run("living").path.is_dir()
    until.touch()
    assert living.end().code == 0


def test_what_a_link_leads_to_is_not_removed(ended: Callable, look: Callable, here: Path, tmp_path: Path) -> None:
    elsewhere = ended("linked").rename(tmp_path / "linked")
    (here / "linked").symlink_to(elsewhere)
    conflict(look("rm", "linked", "--yes", "--json"))
    assert (elsewhere / "result.json").is_file()


def live_lease() -> Lease:
    """A lease of this process, which lives."""
    now = now_ms()
    process = ProcessIdentity.current()
    return Lease(process=process, attempt=1, step=1, last_progress_ms=now, renewed_ms=now)


def test_a_run_that_begins_while_it_is_removed_gets_its_name_back(ended: Callable, look: Callable, here: Path) -> None:
    directory = RunDirectory(ended("begun"))
    before, behind = here.parent / "kept", here / "kept"
    directory.attempts.rename(before)
    shutil.copytree(before, behind)
    claim_attempt(behind, 2, process=ProcessIdentity.current(), started_ms=now_ms())
    # From its place the link leads to what was there, and a level deeper, once the run is set aside, to a new attempt.
    directory.attempts.symlink_to(os.path.relpath(before, directory.attempts.parent))
    conflict(look("rm", "begun", "--yes", "--json"))
    assert (directory.path / "result.json").is_file()
    assert not list(here.glob(".removing-*"))


@pytest.fixture
def owing(ended: Callable, here: Path) -> Callable[[str, str], Path]:
    """``owing("a", "result.json")``: a run whose ledger does not know that a path was uploaded to its mirror."""

    def make(run_id: str, path: str) -> Path:
        directory = ended(run_id, checkpoint_base_uri=f"file://{here.parent}/mirror")
        lines = (directory / "uploads.jsonl").read_text().splitlines(keepends=True)
        kept = [line for line in lines if f'"path":"{path}' not in line]
        assert len(kept) < len(lines)
        (directory / "uploads.jsonl").write_text("".join(kept))
        return directory

    return make


def test_a_run_that_owes_uploads_is_refused_until_they_are_made(owing: Callable, look: Callable) -> None:
    directory = owing("owing", "result.json")
    error = conflict(look("rm", "owing", "--yes", "--json"))
    assert "has not copied everything, and is not removed: fsspec" in error["message"]
    assert "`hostcore upload owing`" in error["hint"]
    assert look("upload", "owing").code == 0
    assert look("rm", "owing", "--yes").code == 0
    assert not directory.exists()


def test_a_run_that_owes_a_checkpoint_is_kept_by_gc_and_removed_by_force(owing: Callable, look: Callable) -> None:
    directory = owing("short", "checkpoints/")
    runs, warnings = collected(look)
    assert ("short" in runs, "'short' has not copied everything" in warnings) == (False, True)
    assert look("rm", "short", "--yes").code == 2
    assert "short" in collected(look, "--force")[0]
    assert look("rm", "short", "--yes", "--force").code == 0
    assert not directory.exists()


def test_checkpoints_that_an_earlier_version_kept_for_their_upload_are_removed_by_force_alone(
    ended: Callable, look: Callable
) -> None:
    directory = ended("earlier")
    kept = directory / "spool" / "step-000005.1f2e3d4c5b6a" / "checkpoints"
    kept.mkdir(parents=True)
    error = conflict(look("rm", "earlier", "--yes", "--json"))
    assert "checkpoints that an earlier version of hostcore kept for their upload" in error["message"]
    runs, warnings = collected(look)
    assert ("earlier" in runs, "'earlier' has checkpoints that an earlier version" in warnings) == (False, True)
    assert kept.is_dir()
    assert look("rm", "earlier", "--yes", "--force").code == 0
    assert not directory.exists()


def test_what_a_killed_removal_has_left_is_removed_by_gc(ended: Callable, look: Callable, here: Path) -> None:
    for name in ("half", "young"):
        (here / f".removing-{name}-1" / name / "checkpoints").mkdir(parents=True)
        (here / f".removing-{name}-1" / name / "checkpoints" / "x").write_text("12345")
    lives = ended("lives")
    (here / ".removing-lives-1").mkdir()
    live_lease().write(lives.rename(here / ".removing-lives-1" / "lives") / "lease.json")
    for name in ("half", "lives"):
        os.utime(here / f".removing-{name}-1", (1, 1))
    listed = look("gc", "--older-than", "9d", "--json").json
    assert [(one["run_id"], one["bytes"]) for one in listed["leftovers"]] == [("half", 5)]
    assert "half removed" in look("gc", "--older-than", "9d").out
    assert (here / ".removing-half-1").is_dir()
    assert look("gc", "--older-than", "9d", "--yes").code == 0
    assert sorted(path.name for path in here.glob(".removing-*")) == [".removing-lives-1", ".removing-young-1"]


def test_an_age_that_is_none_is_a_wrong_use(look: Callable) -> None:
    assert look("gc", "--older-than", "soon").code == 2
