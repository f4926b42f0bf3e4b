"""The files that reporters write, as harnesses of the kit; and the example plugins, installed for a while."""

import json
import math
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from checkout import ROOT

Settings = dict[str, Any]
Events = Sequence[Mapping[str, Any]]


class FullDisk:
    """Lets no file of this process grow, or not beyond a size."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None

    def begin(self, size: int = 0) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._before = self._before or before
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    def end(self) -> None:
        if self._before is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


class JsonlFile:
    """A file with the events of many runs."""

    settle_seconds = 0.2
    #: A file does not hang.
    hang = None

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.jsonl"
        self._disk = FullDisk()
        self.settings: Settings = {"path": str(self._path)}
        self.refuse, self.heal = self._disk.begin, self._disk.end

    def received(self) -> Events:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_bytes().splitlines()]


class JobIndexFile(JsonlFile):
    """A file with the first and the last event of the attempts of many runs."""

    keeps = ("run_submitted", "run_succeeded", "run_failed", "run_cancelled", "run_preempted")

    def received(self) -> Events:
        return [{"run_id": line["job_id"], "seq": line["seq"]} for line in super().received()]


class EventFiles:
    """TensorBoard's files, read with its own reader."""

    settle_seconds = 0.2
    hang = None
    keeps = ("run_started", "metrics", "validation", "test", "checkpoint_saved", "warning", "run_succeeded")

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._disk = FullDisk()
        self.settings: Settings = {"path": str(self._folder)}
        self.refuse, self.heal = self._disk.begin, self._disk.end

    def received(self) -> Events:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event

        found = []
        for file in sorted(self._folder.glob("*/*")):
            for record in RawEventFileLoader(str(file)).Load():
                event = Event.FromString(record)
                mark = event.summary.value[0].node_name if event.summary.value else ""
                if mark:
                    metrics = {value.tag: _number(value) for value in event.summary.value if "/" in value.tag}
                    found.append(
                        {
                            "run_id": file.parent.name,
                            "seq": int(mark.removeprefix("hostcore-event:")),
                            "time_ms": round(event.wall_time * 1000),
                            "step": event.step,
                            "metrics": {name: value for name, value in metrics.items() if not name.startswith("host/")},
                        }
                    )
        return [_without_void(event) for event in found]


def _number(value: Any) -> float:
    return float(value.tensor.float_val[0]) if value.tensor.float_val else float(value.simple_value)


def _without_void(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what trackers have no place for: what has no metrics, and no step."""
    return {key: value for key, value in event.items() if value != {} and (key != "step" or event["metrics"])}


class SqliteFile:
    """The file of the reporter ``sqlite``, which somebody else may be writing to."""

    settle_seconds = 0.2
    keeps = ("metrics", "validation", "test")

    def __init__(self, folder: Path) -> None:
        self._path = folder / "runs.db"
        self._somebody: sqlite3.Connection | None = None
        self.settings: Settings = {"path": str(self._path), "lock_seconds": 0.2}

    def received(self) -> Events:
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path)) as database:
            rows = database.execute("SELECT run_id, seq, step, name, value FROM metrics ORDER BY rowid").fetchall()
        found: dict[tuple[str, int, int], dict[str, float]] = {}
        for run_id, seq, step, name, value in rows:
            found.setdefault((run_id, seq, step), {})[name] = value
        return [
            {"run_id": run_id, "seq": seq, "step": step, "metrics": metrics}
            for (run_id, seq, step), metrics in found.items()
        ]

    def refuse(self) -> None:
        self._somebody = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._somebody.execute("BEGIN EXCLUSIVE")

    hang = refuse

    def heal(self) -> None:
        if self._somebody is not None:
            self._somebody.close()


class LibraryFolder:
    """A folder that a tracker's library writes to, from processes of its own: it can be gone, and they can hang."""

    settle_seconds = 0.5
    #: With the time that a busy machine takes to start such a process.
    patience_seconds = 30.0
    keeps = (
        "run_submitted", "metrics", "validation", "test", "checkpoint_saved",
        "run_succeeded", "run_failed", "run_cancelled", "run_preempted",
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tracker"
        self._away = folder / "away"
        self._stopped: list[psutil.Process] = []
        self.settings: Settings = {"dir": str(self._folder), "timeout_seconds": 15.0}

    def refuse(self) -> None:
        if self._folder.exists():
            self._folder.rename(self._away)
        self._folder.touch()

    def hang(self) -> None:
        self._stopped = psutil.Process().children(recursive=True)
        for process in self._stopped:
            process.suspend()

    def heal(self) -> None:
        for process in self._stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self._stopped = []
        if self._folder.is_file():
            self._folder.unlink()
        if self._away.exists():
            self._away.rename(self._folder)


class WandbFiles(LibraryFolder):
    """The files that wandb writes offline."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings |= {"mode": "offline", "project": "kit"}

    def received(self) -> Events:
        from hostcore_trackers.wandb.session import RunFile, rows_of

        files = sorted(self._folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name)
        found = [
            {
                "run_id": f"conformance-{path.stem.split('-')[2]}",
                "seq": row.number,
                "step": row.values["host/step"],
                "metrics": _of_the_trainer(row.values),
            }
            for path in files
            for row in rows_of(RunFile(path).new_records())
        ]
        return [_without_void(event) for event in found]


class TrackioDatabase(LibraryFolder):
    """The database of Trackio."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings["project"] = "kit"

    def received(self) -> Events:
        path = self._folder / "kit.db"
        if not path.exists():
            return []
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT run_name, log_id, step, metrics FROM metrics ORDER BY id").fetchall()
        found = [
            {
                "run_id": run_id,
                "seq": int(log_id.rpartition(":")[2]),
                "step": step,
                "metrics": _of_the_trainer(json.loads(metrics)),
            }
            for run_id, log_id, step, metrics in rows
        ]
        return [_without_void(event) for event in found]


def _of_the_trainer(row: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: value for name, value in row.items() if not name.startswith(("host/", "_"))}
    return {name: math.nan if value == "NaN" else value for name, value in named.items()}


def in_folder(make: Callable[[Path], Any], folder: Path) -> Callable[[], Any]:
    """A harness as the kit takes it: something to be called without arguments."""

    def harness() -> Any:
        return make(folder)

    return harness


@contextmanager
def installed(name: str, folder: Path) -> Iterator[None]:
    """With an example plugin, which no environment has: its name is that of its tutorial's."""
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site)]
    subprocess.run([*command, str(ROOT / "example_plugins" / name)], check=True)
    sys.path.append(str(site))
    try:
        yield
    finally:
        sys.path.remove(str(site))
        sys.modules.pop(name, None)


def example_plugin(name: str, make: Callable[[Path], Any], folder: Path) -> Callable[[], Any]:
    """A harness with which an example plugin is installed; at once, since it is looked up before the harness opens."""
    stack = ExitStack()
    stack.enter_context(installed(name, folder))

    @contextmanager
    def harness() -> Iterator[Any]:
        with stack:
            yield make(folder)

    return harness
