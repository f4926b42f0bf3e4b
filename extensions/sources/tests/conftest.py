"""Tables of all kinds, opened as a run opens them. Tests and jobs find the modules beside this one by their names."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import DataContext
from hostcore_sources.delta import DeltaSource
from hostcore_sources.duckdb import DuckdbSource
from hostcore_sources.hf_datasets import DatasetsSource
from hostcore_sources.lance import LanceSource

sys.path.insert(0, str(Path(__file__).parent))

SOURCES = {"datasets": DatasetsSource, "delta": DeltaSource, "duckdb": DuckdbSource, "lance": LanceSource}


@pytest.fixture
def open_source(tmp_path: Path) -> Callable[..., Any]:
    """``open_source("lance", path=…, columns=["id"], run="a")``: the data of a run, or of none."""

    def start(name: str, *, columns: Sequence[str] = (), run: str = "", **settings: Any) -> Any:
        owner = SOURCES[name]
        run_dir = tmp_path / "runs" / run
        run_dir.mkdir(parents=True, exist_ok=True)
        ctx = DataContext(cache_dir=str(tmp_path / "cache"), run_dir=str(run_dir) if run else "")
        return owner(settings=owner.Settings(**settings)).open_dataset({"columns": list(columns)}, ctx)

    return start


@pytest.fixture(scope="session")
def read() -> Callable[..., list[Any]]:
    """``read(dataset, "id")``: a column of all rows, in order."""

    def values(dataset: Any, column: str = "id") -> list[Any]:
        return [
            value
            for shard in dataset.shards()
            for batch in dataset.read_shard(shard, [column], 0)
            for value in batch.column(column).to_pylist()
        ]

    return values
