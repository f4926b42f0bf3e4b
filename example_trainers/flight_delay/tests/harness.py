"""What the conformance kit trains on: the package's own job, over a few rows."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flight_delay.prepare_data import prepare

HERE = Path(__file__).parent


class Flights:
    """The flights of the other tests, and a small network."""

    def __enter__(self) -> "Flights":
        self._folder = TemporaryDirectory()
        self.job = self._prepared(Path(self._folder.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _prepared(self, folder: Path) -> dict[str, Any]:
        prepare(folder, HERE / "data")
        return {**job(folder, batch_size=32), "hyperparams": {"hidden_sizes": [16, 8]}}


def job(folder: Path, batch_size: int) -> dict[str, Any]:
    """The package's job over the prepared data in a folder."""
    job: dict[str, Any] = json.loads((HERE.parent / "job.json").read_text())
    for split, file in (("dataset", "train"), ("validation", "validation"), ("test", "test")):
        job[split] |= {"parquet_paths": [str(folder / f"{file}.parquet")], "batch_size": batch_size}
    return {**job, "device": "cpu", "callbacks": []}
