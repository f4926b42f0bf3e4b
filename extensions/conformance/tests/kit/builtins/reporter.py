"""What the built-in reporters, and the one of the tutorial, are checked with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hostcore_conformance.example import load_symbol

HERE = Path(__file__).resolve().parent


def _file(name: str, folder: Path) -> dict[str, Any]:
    return {"harness": _load("file_sinks.py:in_folder")(_load(f"file_sinks.py:{name}"), folder)}


def _server(name: str, command: str, folder: Path) -> dict[str, Any]:
    _load(f"server_sinks.py:{command}")()  # fails or skips without one
    return {"harness": _load("file_sinks.py:in_folder")(_load(f"server_sinks.py:{name}"), folder)}


def _sqlite(folder: Path) -> dict[str, Any]:
    sink = _load("file_sinks.py:SqliteFile")
    return {"harness": _load("file_sinks.py:example_plugin")("sqlite_reporter", sink, folder)}


def _load(symbol: str) -> Any:
    return load_symbol(symbol, HERE.parent)


EXAMPLES: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "terminal": lambda folder: {"settings": {"every_seconds": 0}},
    "prometheus": lambda folder: {},
    "jsonl": partial(_file, "JsonlFile"),
    "job-index": partial(_file, "JobIndexFile"),
    "tensorboard": partial(_file, "EventFiles"),
    "trackio": partial(_file, "TrackioDatabase"),
    "wandb": partial(_file, "WandbFiles"),
    "webhook": lambda folder: {"harness": _load("server_sinks.py:webhook")},
    "redis-streams": partial(_server, "redis_server", "redis_command"),
    "mlflow": partial(_server, "mlflow_server", "mlflow_command"),
    "sqlite": _sqlite,
}
