"""``hostcore --help`` is quick because it imports next to nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {"torch", "pyarrow", "cattrs", "rich", "matplotlib", "numpy", "pandas", "fsspec", "ruamel", "safetensors"}
#: Of the standard library and of what is small: each takes as long as ten modules of commands. ``email`` is another,
#: but comes with ``importlib.metadata``, which finds the plugins.
SLOW = {"asyncio", "difflib", "hashlib", "http", "json", "orjson", "pluggy", "secrets", "subprocess"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["xyzzy"]])
def test_help_imports_nothing_heavy(imported: Callable, arguments: list[str]) -> None:
    assert imported(*arguments) & HEAVY == set()


def test_help_imports_the_modules_of_commands_and_nothing_slow(imported: Callable) -> None:
    found = imported("--help")
    assert {"click", "attrs", "hostcore_service", "hostcore_conformance"} <= found
    assert found & SLOW == set()


@pytest.mark.parametrize("command", ["list", "plugins"])
def test_a_list_of_runs_or_plugins_imports_no_events_and_no_hooks(imported: Callable, command: str) -> None:
    assert imported(command) & {"cattrs", "hashlib", "pluggy", "subprocess"} == set()


@pytest.mark.parametrize("arguments", [["list"], ["status", "none"], ["plugins"], ["list", "--json"]])
def test_a_look_at_runs_and_plugins_imports_neither_torch_nor_pyarrow(imported: Callable, arguments: list[str]) -> None:
    assert imported(*arguments) & {"torch", "pyarrow", "rich", "matplotlib", "numpy", "pandas"} == set()


@pytest.mark.parametrize("arguments", [["logs", "none"], ["verify", "none"], ["compare", "none", "nothing"]])
def test_a_closer_look_at_runs_imports_nothing_heavy_before_it_is_needed(imported: Callable, arguments: list) -> None:
    assert imported(*arguments) & {"torch", "pyarrow", "rich", "matplotlib", "numpy", "pandas"} == set()


def test_an_invalid_job_is_refused_without_torch(imported: Callable, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1}')
    assert imported("run", "job.json") & {"torch", "pyarrow", "matplotlib"} == set()
