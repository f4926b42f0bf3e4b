"""What the conformance kit trains on: the package's own job, over a few rows."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from char_lm.prepare_data import prepare

HERE = Path(__file__).parent


class Text:
    """A text of our own making, byte by byte, and the smallest GPT."""

    def __enter__(self) -> "Text":
        self._folder = TemporaryDirectory()
        self.job = self._prepared(Path(self._folder.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _prepared(self, folder: Path) -> dict[str, Any]:
        text = folder / "text.txt"
        text.write_text("".join(f"{number} times {number} is {number * number}. " for number in range(2_000)))
        prepare(folder, text)
        hyperparams = {"context": 32, "layers": 1, "heads": 2, "width": 16, "dropout": 0.1, "sample_length": 8}
        samples = [{"prompt": "7 times 7 is ", "seed": 0}]
        return {**job(folder, batch_size=4), "hyperparams": hyperparams, "samples": samples}


def job(folder: Path, batch_size: int) -> dict[str, Any]:
    """The package's job over the prepared data in a folder."""
    job: dict[str, Any] = json.loads((HERE.parent / "job.json").read_text())
    for split, file in (("dataset", "train"), ("validation", "validation"), ("test", "test")):
        job[split] |= {"parquet_paths": [str(folder / f"{file}.parquet")], "batch_size": batch_size}
    return {**job, "device": "cpu", "callbacks": []}
