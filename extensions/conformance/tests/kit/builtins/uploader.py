"""What the built-in uploaders, and the one of the tutorial, are checked with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hostcore_conformance.example import load_symbol

HERE = Path(__file__).resolve().parent
STORES = HERE.parent


def _harness(name: str, folder: Path) -> dict[str, Any]:
    in_folder = load_symbol("file_sinks.py:in_folder", STORES)
    return {"harness": in_folder(load_symbol(f"uploader_stores.py:{name}", STORES), folder)}


def _mlflow(folder: Path) -> dict[str, Any]:
    load_symbol("server_sinks.py:mlflow_command", STORES)()  # fails or skips without one
    return _harness("mlflow_artifacts", folder)


def _vault(folder: Path) -> dict[str, Any]:
    example_plugin = load_symbol("file_sinks.py:example_plugin", STORES)
    return {"harness": example_plugin("vault_uploader", load_symbol("uploader_stores.py:Vault", STORES), folder)}


EXAMPLES: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    # It wraps the others; there are none in the kit.
    "chaos": lambda folder: {"settings": {"faults": ["store-down@0s..1s"]}},
    "fsspec": partial(_harness, "FolderStore"),
    "http": lambda folder: {"harness": load_symbol("uploader_stores.py:http_store", STORES)},
    "mlflow-artifacts": _mlflow,
    "vault": _vault,
}
