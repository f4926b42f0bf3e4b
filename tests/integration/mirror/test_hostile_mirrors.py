"""A mirror in a folder that others write: it holds regular files below its root, or nothing."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.opening import open_run
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore.supervisor.remote.adopting import adopt_from_mirror, find_in_mirror
from hostcore.supervisor.remote.checkpoints import fetch_checkpoint
from hostcore.supervisor.remote.watching import refresh
from hostcore_hookspecs.errors import HostcoreError

JOB = {"trainer": "exact_trainer:Trainer", "run_id": "a", "max_steps": 4, "checkpoint_every": 2, "metric_every": 1}
PREFIX = "a/framework=exact_trainer-Trainer"
SECRET = "root:x:0:0:a line of a file of others\n"


@pytest.fixture(scope="module")
def kept(make_machine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mirror of a run of four steps."""
    there, base = make_machine("there"), tmp_path_factory.mktemp("kept")
    data = {"source": "mock", "num_rows": 8, "batch_size": 2}
    assert there.hostcore("run", there.job(**JOB, dataset=data, checkpoint_base_uri=str(base))).code == 0
    return base


@pytest.fixture
def mirror(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "base")
    return tmp_path / "base" / PREFIX


@pytest.fixture
def plan(mirror: Path, tmp_path: Path) -> RunPlan:
    data = {"source": "mock", "num_rows": 8, "batch_size": 2}
    job = {**JOB, "dataset": data, "terminal": False, "device": "cpu", "checkpoint_base_uri": str(tmp_path / "base")}
    return make_plan({**job, "max_steps": 6}, runs=tmp_path / "runs")


def link(path: Path) -> None:
    """Put a link in the place of a file or folder, to what others have elsewhere."""
    elsewhere = path.parents[3] / "elsewhere" / path.name
    elsewhere.parent.mkdir(exist_ok=True)
    if path.suffix == ".jsonl":
        path.unlink()
        elsewhere.write_text(SECRET)
    else:
        path.rename(elsewhere)
    path.symlink_to(elsewhere)


def pipe(path: Path) -> None:
    """Put a pipe in the place of a file, which nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def contents(folder: Path) -> Mapping[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("hostile", [link, pipe])
def test_a_record_that_is_no_regular_file_is_none(plan: RunPlan, mirror: Path, hostile: Callable[[Path], None]) -> None:
    assert find_in_mirror(plan) != ""
    hostile(mirror / "config" / "run.json")
    assert find_in_mirror(plan) == ""
    adopt_from_mirror(plan, print)
    assert not plan.directory.path.exists()


@pytest.mark.parametrize("hostile", [link, pipe])
@pytest.mark.parametrize("name", ["logs/events.jsonl", "result.json", "attempts/1.json"])
def test_nothing_of_it_is_fetched(plan: RunPlan, mirror: Path, name: str, hostile: Callable[[Path], None]) -> None:
    hostile(mirror / name)
    adopt_from_mirror(plan, print)
    assert name not in contents(plan.directory.path)
    assert not any(SECRET.encode() in content for content in contents(plan.directory.path).values())


@pytest.mark.parametrize("hostile", [link, pipe])
def test_a_checkpoint_with_such_a_file_is_passed_over(
    plan: RunPlan, mirror: Path, hostile: Callable[[Path], None]
) -> None:
    hostile(mirror / "checkpoints" / "step-000004" / "host.json")
    told: list[str] = []
    adopt_from_mirror(plan, told.append)
    assert any("step-000004 is passed over" in line for line in told)
    assert [path.name for path in sorted(plan.directory.checkpoints.glob("*.json"))] == ["step-000002.json"]
    with pytest.raises(HostcoreError):
        fetch_checkpoint(f"file://{mirror}/checkpoints/step-000004.json", {}, print)


def test_a_folder_that_is_a_link_holds_nothing(plan: RunPlan, mirror: Path) -> None:
    link(mirror / "checkpoints")
    adopt_from_mirror(plan, print)
    assert list(plan.directory.checkpoints.iterdir()) == []


def test_the_base_itself_may_be_a_link(plan: RunPlan, tmp_path: Path) -> None:
    (tmp_path / "base").rename(tmp_path / "disk")
    (tmp_path / "base").symlink_to(tmp_path / "disk")
    adopt_from_mirror(plan, print)
    assert plan.directory.events.exists()


@pytest.mark.parametrize("hostile", [link, pipe])
@pytest.mark.parametrize("name", ["logs/events.jsonl", "config/run.json", "result.json"])
def test_a_run_that_is_followed_there_shows_nothing_of_it(
    plan: RunPlan, mirror: Path, name: str, hostile: Callable[[Path], None]
) -> None:
    """As `status`, `logs` and a service follow a run that goes on where its directory is not seen."""
    with_run = RunDirectory(plan.directory.path)
    bare = attrs.evolve(plan.spec, checkpoint_base_uri=None)
    open_run(attrs.evolve(plan, spec=bare))
    shutil.copy(mirror / "config" / "run.json", with_run.record)
    hostile(mirror / name)
    refresh(plan.spec, with_run, at_once=True)
    assert not any(SECRET.encode() in content for content in contents(with_run.path).values())
    assert with_run.result.exists() == (name != "result.json")
