"""What the conformance kit trains on: the programs of this folder, over a few rows."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))
from prepare_data import prepare  # noqa: E402 - the folder is no package


class InPython:
    """The program in Python, in the Python that runs the kit."""

    def __enter__(self) -> "InPython":
        self._folder = TemporaryDirectory()
        self.job = self._made(Path(self._folder.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _made(self, folder: Path) -> dict[str, Any]:
        prepare(folder)
        job: dict[str, Any] = json.loads((HERE / "python.json").read_text())
        for key, file in (("dataset", "train"), ("validation", "validation")):
            job[key] |= {"parquet_paths": [str(folder / f"{file}.parquet")], "batch_size": 16}
        job["test"] = job["validation"]
        job["samples"] = [{"prompt": "the weights"}]
        job["hyperparams"] |= {"command": self.command(folder), "cwd": str(HERE)}
        return job

    def command(self, folder: Path) -> list[str]:
        """How the program is started."""
        return [sys.executable, "python/linear.py"]


class InGo(InPython):
    """The program in Go, built for the kit."""

    def command(self, folder: Path) -> list[str]:
        go = shutil.which("go")
        assert go is not None, "there is no go: apt-get install golang-go"
        subprocess.run([go, "build", "-o", str(folder / "linear"), "."], cwd=HERE / "go", check=True)
        return [str(folder / "linear")]
