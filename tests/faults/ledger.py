"""What a run has told, and whether what lies on the disk agrees with it."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import orjson

from hostcore.checkpoints.find import committed, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.state import read_state
from hostcore.worker.feed.digest import OrderLayout, expected_digest
from hostcore.worker.feed.feed import Cursor

DATASET = {"source": "mock", "num_rows": 50, "num_shards": 9, "batch_size": 8, "shuffle": True, "shuffle_window": 20}
ENDS = {"run_succeeded", "run_failed", "run_cancelled", "run_preempted"}


def job(run_id: str, **keys: Any) -> dict[str, Any]:
    """A job of ``fault_trainer``."""
    return {
        "trainer": "fault_trainer:Trainer",
        "dataset": DATASET,
        "metric_every": 1,
        "terminal": False,
        "device": "cpu",
        "run_id": run_id,
        **keys,
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log: a line that was being written when its writer died is none."""
    if not path.exists():
        return []
    return [orjson.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _attempt(log: Path) -> int:
    """The attempt of ``rank-0.attempt-12.jsonl``."""
    return int(log.name.split(".")[1].removeprefix("attempt-"))


@attrs.frozen
class Ledger:
    """A run directory, as somebody reads it who was told of every event."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def events(self) -> list[dict[str, Any]]:
        """The merged log."""
        return _lines(self.path / "logs" / "events.jsonl")

    @property
    def told(self) -> list[dict[str, Any]]:
        """Everything that was told: the merged log, and what a dead supervisor has not merged."""
        logs = {_attempt(log): _lines(log) for log in self.path.glob("logs/rank-*.jsonl")}
        return [*self.events, *({**event, "attempt": attempt} for attempt in sorted(logs) for event in logs[attempt])]

    @property
    def result(self) -> dict[str, Any] | None:
        path = self.path / "result.json"
        return dict(orjson.loads(path.read_bytes())) if path.exists() else None

    @property
    def acknowledged(self) -> set[int]:
        """The steps of the checkpoints that somebody may rely on."""
        return {event["step"] for event in self.told if event["event"] == "checkpoint_saved"}

    @property
    def steps(self) -> list[int]:
        """The steps that have a checkpoint."""
        return [record.step for record in committed(self.checkpoints)]

    @property
    def hidden(self) -> Sequence[str]:
        """The names that belong to something unfinished. Folders may be removed meanwhile."""
        names = (name for _, folders, files in os.walk(self.path) for name in (*folders, *files))
        return sorted(name for name in names if name.startswith("."))

    def check_checkpoints(self, *, keep: int) -> None:
        """See that no acknowledged checkpoint is lost, and none that is there is unloadable.

        A dead attempt may have left one withdrawn, to write its step again; the next one puts it back. So it is a copy
        that is looked at, after what the next attempt does first.

        :param keep: What the job says: older ones may have been removed.
        """
        acknowledged = self.acknowledged
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "checkpoints"
            shutil.copytree(self.checkpoints, copy) if self.checkpoints.exists() else copy.mkdir()
            remove_uncommitted(copy, attempt=10**6)
            records = committed(copy)
            steps = [record.step for record in records]
            for step in sorted(acknowledged - set(steps)):
                newer = sum(there > step for there in steps)
                assert newer >= max(keep, 1), f"the acknowledged checkpoint of step {step} is lost; there are {steps}"
            for record in records:
                verify(copy, record)
                for name in ("state", "host", "rank-0"):
                    read_state(copy / record.folder_name, name)
            found = newest(copy).found
            assert (found.record.step if found else 0) == max(steps, default=0)

    @property
    def losses(self) -> Mapping[int, float]:
        """By step; of a step that was made several times, as it was told last."""
        return {event["step"]: event["metrics"]["error"] for event in self.told if event["event"] == "metrics"}

    def check_numbers(self) -> None:
        """See that the events are numbered without a gap."""
        assert [event["seq"] for event in self.events] == list(range(1, len(self.events) + 1))

    @property
    def weights(self) -> Mapping[str, bytes]:
        """Of the newest checkpoint, bit for bit."""
        found = newest(self.checkpoints).found
        assert found is not None
        model = read_state(found.folder, "state")["model"]
        return {name: value.numpy().tobytes() for name, value in model.items()}

    def check_digest(self) -> None:
        """See that the rows behind the newest checkpoint are those of the order, each once."""
        found = newest(self.checkpoints).found
        assert found is not None
        host = read_state(found.folder, "host")
        layout = OrderLayout.stored(host["data"], host["shard_rows"])
        until = Cursor(epoch=host["cursor"]["epoch"], rows=host["cursor"]["rows"])
        assert host["cursor"]["digest"] == expected_digest(layout, Cursor(), until)
