"""Runs whose directories lie in a store, as uploads leave them."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pytest
from pasts import Past

from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore.supervisor.remote.adopting import adopt_from_mirror

BASE = "memory://mirror of ü"
PREFIX = "/mirror of ü/a/framework=somewhere-Trainer"
MIRRORED = ("config", "attempts", "logs", "checkpoints", "result.json")
JOB = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "terminal": False, "checkpoint_base_uri": BASE}


class DeafPlan:
    """Plans without the uploader that a mirror stands for: what lies in the store is what the test puts there."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs

    def __call__(self, **keys: Any) -> RunPlan:
        plan = make_plan({key: value for key, value in {**JOB, **keys}.items() if value is not None}, runs=self.runs)
        return attrs.evolve(plan, uploaders=[])


@attrs.frozen
class Store:
    """A machine that has run the job, and the mirror of what it has."""

    plan: Callable[..., RunPlan]
    filesystem: Any

    @property
    def past(self) -> Past:
        """What the attempts of that machine leave."""
        return Past(self.plan())

    @property
    def directory(self) -> Any:
        return self.plan().directory

    def mirror(self, *, remove: bool = True) -> None:
        """Copy the run directory to the store, as uploads do."""
        own = self.directory.path
        self.directory.events.write_text('{"seq":1}\n')
        for path in own.rglob("*"):
            relative = path.relative_to(own).as_posix()
            if path.is_file() and relative.split("/")[0] in MIRRORED:
                self.filesystem.pipe(f"{PREFIX}/{relative}", path.read_bytes())
        if remove:
            shutil.rmtree(own)

    def change(self, name: str, content: bytes | None) -> None:
        """Change, or remove, something in the store."""
        if content is None:
            self.filesystem.rm(f"{PREFIX}/{name}", recursive=True)
        else:
            self.filesystem.pipe(f"{PREFIX}/{name}", content)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The machine that the run was begun on, and its mirror."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield Store(DeafPlan(tmp_path / "there"), filesystem)
    filesystem.store.clear()


@attrs.frozen
class Machine:
    """Another machine."""

    plan: Callable[..., RunPlan]
    told: list[str] = attrs.field(factory=list)

    def adopt(self, **keys: Any) -> Any:
        """Adopt the run; what is in its directory then."""
        plan = self.plan(**keys)
        adopt_from_mirror(plan, self.told.append)
        return plan.directory

    @property
    def tree(self) -> Mapping[str, bytes]:
        runs = self.plan.runs
        return {str(path.relative_to(runs)): path.read_bytes() for path in runs.rglob("*") if path.is_file()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Another machine, which has nothing yet."""
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("hostcore_builtin_plugins.stores.get.PAUSE_SECONDS", 0.01)
    return Machine(DeafPlan(tmp_path / "here"))
