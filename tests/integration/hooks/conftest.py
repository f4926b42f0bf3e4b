"""Runs in this process, with training, validation and test data in files."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from played import Played
from played import play as play_job

from hostcore.supervisor import quick_checks

HERE = Path(__file__).parent


def write_rows(path: Path, first: int, count: int) -> None:
    """A table of one column, ``row``, that counts."""
    table = pa.table({"row": pa.array(range(first, first + count), pa.int64())})
    pq.write_table(table, path)


def write_numbers(folder: Path) -> None:
    """32 rows of ``a``, ``b`` and ``y``."""
    rows = range(32)
    columns = {
        "a": [(7 * row) % 5 - 2.0 for row in rows],
        "b": [(3 * row) % 7 - 3.0 for row in rows],
        "y": [row % 3 * 1.0 for row in rows],
    }
    pq.write_table(pa.table(columns), folder / "numbers.parquet")


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has enough of everything, so that no run has a warning in its log."""
    monkeypatch.setattr(
        quick_checks, "space_of", lambda _: {"free_bytes": 10**12, "total_bytes": 10**13, "free_names": None}
    )
    monkeypatch.setattr(quick_checks, "available_memory", lambda: 10**12)


@pytest.fixture
def data() -> dict[str, Any]:
    """Keys of a job: six rows in batches of two to train on, three to validate and two to test on."""
    return {
        "dataset": {"parquet_paths": "train.parquet", "batch_size": 2},
        "validation": {"parquet_paths": "validation.parquet", "batch_size": 2},
        "test": {"parquet_paths": "test.parquet", "batch_size": 2},
    }


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of this folder, as jobs of this process import them."""
    monkeypatch.syspath_prepend(str(HERE))
    yield
    for name in ("recorder", "exact"):
        sys.modules.pop(name, None)


@pytest.fixture
def recorder(modules: None) -> ModuleType:
    """The module ``recorder``."""
    import recorder

    return recorder


@pytest.fixture
def play(
    recorder: ModuleType, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Played]:
    """``play(epochs=2, …)``: run a job to its end, in this process, and see what was called."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.parquet", 0, 6)
    write_rows(tmp_path / "validation.parquet", 100, 3)
    write_rows(tmp_path / "test.parquet", 200, 2)

    def start(*, trace_hooks: bool = False, **keys: Any) -> Played:
        recorder.CALLS.clear()
        job = {
            "trainer": "recorder:Trainer",
            "callbacks": ["recorder:Callback"],
            "metric_every": 1,
            "dataset": data["dataset"],
            **keys,
        }
        played = play_job(job, tmp_path / "runs", trace_hooks=trace_hooks)
        return attrs.evolve(played, calls=list(recorder.CALLS))

    return start


@pytest.fixture
def exact(modules: None, tmp_path: Path) -> ModuleType:
    """The module ``exact``, and the data of its trainers: 32 rows of ``a``, ``b`` and ``y``."""
    import exact

    exact.seen.clear()
    write_numbers(tmp_path)
    return exact


@pytest.fixture(scope="session")
def write_numbers_into() -> Callable[[Path], None]:
    """See ``write_numbers``."""
    return write_numbers
