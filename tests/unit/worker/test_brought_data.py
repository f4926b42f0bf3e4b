"""Data that an installed trainer brings, where the job's own rules about it decide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.runs.contract import EITHER, WorkerContract
from hostcore.worker.loading import Loading
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore.worker.startup import read_job

MOCK = {"source": "mock", "num_rows": 12, "types": {"x": "float32"}}
Load = Callable[..., Loading]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """``load({"dataset": …}, max_steps=3)``: load a job of the trainer ``digits``, which brings these sections."""
    trainer = pytest.importorskip("digits.trainer").DigitsTrainer

    def start(sections: Any, *, contract: dict[str, Any] | None = None, **keys: Any) -> Loading:
        monkeypatch.setattr(trainer, "data_sections", lambda self: sections, raising=False)
        (tmp_path / "job.json").write_text(json.dumps({"trainer": "digits", **keys}))
        paths = {"checkpoints_dir": "", "samples_dir": "", "events_path": "", "run_dir": ""}
        file = str(tmp_path / "job.json")
        made = WorkerContract(trainer_plugin="digits", job_spec_path=file, **paths, **(contract or {}))
        return Loading(made, *read_job(made, world_size=1), RankInfo())

    return start


def uses(loaded: Loading) -> list[str]:
    return [one.use for one in loaded.components if one.ref.kind == "data_source"]


def test_sources_are_selected_and_loaded_in_the_order_of_a_job(load: Load) -> None:
    loaded = load({"test": MOCK, "dataset": MOCK}, validation=MOCK, callbacks=["lr-monitor"])
    loaded.raise_errors()
    assert [one.use for one in loaded.components] == [
        *("trainer:digits", "data_source:mock#train", "data_source:mock#validation", "data_source:mock#test"),
        "callback:0:lr-monitor",
    ]
    assert sorted(loaded.brought) == ["dataset", "test"]


def test_a_source_by_import_path_is_refused_where_import_paths_are(load: Load) -> None:
    loaded = load({"dataset": {"source": "digits.trainer:DigitsTrainer"}}, import_paths=False)
    with pytest.raises(Errors) as caught:
        loaded.raise_errors()
    (error,) = caught.value.errors
    assert (error.code, error.pointer) == ("job.import_paths", "/trainer")
    assert error.message.startswith('in the "dataset" that the trainer digits (hostcore-digits')
    assert "at /source: digits.trainer:DigitsTrainer is an import path" in error.message


def test_data_that_is_handed_over_wins(load: Load) -> None:
    loaded = load({"dataset": {"source": "nope"}, "validation": MOCK}, contract={"arrow_ipc_path": "/a.arrow"})
    loaded.raise_errors()
    assert loaded.spec.dataset is not None
    assert loaded.spec.dataset.settings == {"paths": ["/a.arrow"]}
    assert list(loaded.brought) == ["validation"]
    own = {"source": "arrow", "paths": "/a.arrow", "allow_nulls": True}
    loaded = load({}, contract={"arrow_ipc_path": "/a.arrow"}, dataset=own)
    loaded.raise_errors()
    assert loaded.spec.dataset is not None
    assert loaded.spec.dataset.settings == {"paths": "/a.arrow", "allow_nulls": True}


@pytest.mark.parametrize(
    ("evaluate", "own", "brought", "loaded_sources"),
    [
        (EITHER, [], ["dataset", "validation", "test"], ["train", "test"]),
        (EITHER, ["validation"], ["test"], ["test"]),
        (EITHER, ["validation"], ["dataset"], ["train", "validation"]),
        ("validation", ["test"], ["validation"], ["validation"]),
    ],
)
def test_an_evaluation_has_its_own_split_alone(
    load: Load, evaluate: str, own: list[str], brought: list[str], loaded_sources: list[str]
) -> None:
    keys = {**dict.fromkeys(own, MOCK), "max_steps": 1}
    loaded = load(dict.fromkeys(brought, MOCK), contract={"evaluate": evaluate}, **keys)
    loaded.raise_errors()
    assert uses(loaded) == [f"data_source:mock#{split}" for split in loaded_sources]
    assert set(loaded.brought) <= set(brought)
