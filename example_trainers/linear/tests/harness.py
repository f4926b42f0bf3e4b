"""What the conformance kit trains on: the programs of this folder, over a few rows."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]  # neither folder is a package
from prepare_data import prepare  # noqa: E402
from prepared_job import PreparedJob, job_over  # noqa: E402


class InPython(PreparedJob):
    """The program in Python, in the Python that runs the kit."""

    def prepared(self, folder: Path) -> dict[str, Any]:
        prepare(folder)
        job = job_over(folder, HERE / "python.json", batch_size=16, samples=[{"prompt": "the weights"}])
        job["test"] = job["validation"]
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
