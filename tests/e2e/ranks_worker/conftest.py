"""Runs of several ranks: real processes, connected by gloo, each with its own part of real data."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ports import free_ports

from hostcore.checkpoints.state import read_state
from hostcore.runs.contract import WorkerContract

HERE = Path(__file__).parent
ROWS = 60


@attrs.frozen
class Outcome:
    """What the ranks of an attempt have left."""

    path: Path
    attempt: int
    codes: list[int | None]
    hung: list[int]
    said: list[list[Any]]

    def events(self, rank: int = 0, name: str | None = None) -> list[dict[str, Any]]:
        log = self.path / "logs" / f"rank-{rank}.attempt-{self.attempt}.jsonl"
        events = [orjson.loads(line) for line in log.read_bytes().splitlines()]
        return [event for event in events if name in (None, event["event"])]

    def losses(self) -> dict[int, float]:
        return {event["step"]: event["metrics"]["train/loss"] for event in self.events(name="metrics")}

    def notes(self, rank: int = 0) -> Any:
        """What the trainer wrote down when it was torn down."""
        return json.loads((self.path / f"notes.{rank}.attempt-{self.attempt}.json").read_text())

    def host(self, step: int) -> dict[str, Any]:
        return read_state(self.path / "checkpoints" / f"step-{step:06d}", "host")

    def files(self, step: int) -> set[str]:
        folder = self.path / "checkpoints" / f"step-{step:06d}"
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def rows(self, step: int) -> list[int]:
        """The rows of a step, in the order of their positions."""
        own = [self.notes(rank)["rows"][str(step)] for rank in range(len(self.codes))]
        return [row for together in zip(*own, strict=True) for row in together]

    def told(self, rank: int = 0) -> Any:
        """What the callback ``Told`` was told."""
        return json.loads((self.path / f"told.{rank}.attempt-{self.attempt}.json").read_text())

    def error(self, rank: int) -> dict[str, Any]:
        """What a rank failed of."""
        return self.events(rank, "run_failed")[-1]["error"]

    def end(self, rank: int = 0) -> dict[str, Any]:
        """The last event of a rank."""
        return self.events(rank)[-1]

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.path.glob("output-*.txt")))


@attrs.frozen
class Runner:
    """Runs attempts on as many ranks as asked for."""

    server: "subprocess.Popen[str]"
    folder: Path
    data: Path

    def __call__(
        self,
        run_id: str,
        ranks: int,
        *,
        batch: int = 12,
        seconds: float = 600,
        start_from: Path | None = None,
        serves: bool = True,
        **keys: Any,
    ) -> Outcome:
        """Run an attempt; with a ``run_id`` that there is, its next one.

        :param batch: Rows of a step over all ranks.
        :param serves: Whether rank 0 inherits the socket where they meet; else it opens the port itself.
        """
        path = self.folder / run_id
        for name in ("config", "attempts", "logs", "checkpoints", "samples"):
            (path / name).mkdir(parents=True, exist_ok=True)
        attempt = len(list((path / "attempts").iterdir())) + 1
        (path / "attempts" / f"{attempt}.json").write_text("{}")
        data = {"parquet_paths": [str(self.data)], "batch_size": batch // ranks}
        job = {
            "trainer": "rank_trainer:Trainer",
            "run_id": run_id,
            "devices": ["cpu"] * ranks,
            "dataset": {**data, "shuffle": True},
            "metric_every": 1,
            "terminal": False,
            **keys,
        }
        for split in ("validation", "test"):
            if split in job:
                job[split] = {"parquet_paths": [str(self.data)], "batch_size": 7, **job[split]}
        file = path / "config" / f"job.attempt-{attempt}.json"
        file.write_text(json.dumps(job))
        contracts = []
        for rank in range(ranks):
            contracts.append(path / "config" / f"contract.attempt-{attempt}.rank-{rank}.json")
            WorkerContract(
                trainer_plugin=job["trainer"],
                job_spec_path=str(file),
                checkpoints_dir=str(path / "checkpoints"),
                samples_dir=str(path / "samples"),
                events_path=str(path / "logs" / f"rank-{rank}.attempt-{attempt}.jsonl"),
                run_dir=str(path),
                attempt=attempt,
                attempts_dir=str(path / "attempts"),
                start_from=str(start_from or ""),
            ).write(contracts[-1])
        request = {
            "contracts": [str(one) for one in contracts],
            "outputs": str(path),
            "cwd": str(self.folder),
            "seconds": seconds,
            "serves": serves,
            "port": 0 if serves else free_ports(1),
        }
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        answer = json.loads(self.server.stdout.readline())
        return Outcome(path, attempt, answer["codes"], answer["hung"], answer["said"])


@pytest.fixture(scope="session")
def rank_server() -> Iterator["subprocess.Popen[str]"]:
    """The process that ranks are forked from."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "rank_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )
    yield server
    assert server.stdin is not None
    server.stdin.close()
    server.wait(300)


@pytest.fixture(scope="module")
def run(rank_server: "subprocess.Popen[str]", tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """``run("a", 2, max_steps=4)``: run a job of ``rank_trainer`` on two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    rows = range(ROWS)
    table = pa.table({"x": [float(row % 7) for row in rows], "y": [float(row % 5) for row in rows], "row": list(rows)})
    pq.write_table(table, folder / "data.parquet", row_group_size=6)
    return Runner(rank_server, folder, folder / "data.parquet")
