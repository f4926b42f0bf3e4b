"""The plugins that a worker loads are those of the plan in the run's record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.runs.contract import WorkerContract
from hostcore.runs.record import RunRecord
from hostcore.supervisor.plan import make_plan
from hostcore.worker.loading import Loading
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore.worker.startup import read_job

TRAINER = """
class Trainer:
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch): return None
    def train_step(self, prepared_batch, state): return None
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): pass
    def data_sections(self, hyperparams, ctx):
        return {"validation": {"source": "mock", "num_rows": 4, "types": {"x": "float32"}}}
"""


@pytest.fixture
def installed(site_here: Any) -> Callable[..., Path]:
    """``installed("my-plugin", "1.0")``: install a distribution with a trainer ``mine``, and return its metadata."""

    def install(distribution: str, version: str) -> Path:
        module = distribution.replace("-", "_")
        entry_points = {"hostcore.trainers": {"mine": f"{module}:Trainer"}}
        site_here.install(distribution, version=version, modules={f"{module}.py": TRAINER}, entry_points=entry_points)
        return Path(site_here.path, f"{module}-{version}.dist-info")

    return install


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Loading]:
    """``load(plan)``: load the components of a planned run, as its worker does."""

    def load(plan: Any) -> Loading:
        record = tmp_path / "run.json"
        RunRecord(job=plan.spec.to_json(), job_dir=str(tmp_path), refs=plan.refs).write(record)
        paths = {"checkpoints_dir": "", "samples_dir": "", "events_path": "", "run_dir": ""}
        contract = WorkerContract(trainer_plugin=plan.spec.trainer, job_spec_path=str(record), **paths)
        return Loading(contract, *read_job(contract, world_size=1), RankInfo())

    return load


def planned(tmp_path: Path, **keys: Any) -> Any:
    return make_plan({"trainer": "mine", "max_steps": 1, **keys}, runs=tmp_path / "runs", job_dir=tmp_path)


def test_they_are_decided_once(installed: Callable, load: Callable, tmp_path: Path) -> None:
    installed("my-plugin", "1.0")
    data = {"source": "mock", "num_rows": 4, "types": {"x": "float32"}}
    plan = planned(tmp_path, dataset={**data, "batch_size": 2}, validation=data)
    installed("another", "1.0")  # now the name is of two
    loaded = load(plan)
    loaded.raise_errors()
    uses = [(one.use, one.ref.value) for one in loaded.components]
    assert uses[0] == ("trainer:mine", "my_plugin:Trainer")
    assert [use for use, _ in uses[1:]] == ["data_source:mock#train", "data_source:mock#validation"]


def test_data_that_the_trainer_brings_may_have_a_source_that_the_plan_lacks(
    installed: Callable, load: Callable, tmp_path: Path
) -> None:
    installed("my-plugin", "1.0")
    plan = planned(tmp_path)
    assert [ref["kind"] for ref in plan.refs] == ["trainer", "reporter", "launcher"]
    loaded = load(plan)
    loaded.raise_errors()
    assert [one.use for one in loaded.components] == ["trainer:mine", "data_source:mock#validation"]


@pytest.mark.parametrize("now", ["2.0", None])
def test_another_version_than_the_planned_is_refused(
    installed: Callable, load: Callable, tmp_path: Path, now: str | None
) -> None:
    metadata = installed("my-plugin", "1.0")
    plan = planned(tmp_path)
    metadata.rename(metadata.with_name("old"))
    if now:
        installed("my-plugin", now)
    with pytest.raises(Errors) as caught:
        load(plan)
    (error,) = caught.value.errors
    assert (error.code, error.pointer) == ("plugin.version", "/trainer")
    there = f"my-plugin {now}" if now else "nothing of it"
    assert error.message == (
        f"the trainer mine (my-plugin 1.0, my_plugin:Trainer) was planned, but {there} is installed"
    )
    assert "start the run again" in error.hint


def test_a_plugin_that_runs_code_of_the_job_is_recorded_as_such(load: Callable, tmp_path: Path) -> None:
    plan = planned(tmp_path, trainer="process", hyperparams={"command": ["true"]})
    (trainer,) = [ref for ref in plan.refs if ref["kind"] == "trainer"]
    assert trainer["runs_code"]
