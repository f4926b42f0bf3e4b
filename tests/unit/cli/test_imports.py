"""Commands are quick because they import next to nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {"torch", "pyarrow", "cattrs", "rich", "matplotlib", "numpy", "pandas", "fsspec", "ruamel", "safetensors"}
#: Of the standard library and of what is small: each takes as long as ten modules of commands. ``email`` is another,
#: but comes with ``importlib.metadata``, which finds the plugins.
SLOW = {"asyncio", "difflib", "hashlib", "http", "json", "orjson", "pluggy", "secrets", "subprocess"}
#: What a look at runs and plugins does not need, and what a list of them does not.
OF_RUNS = {"torch", "pyarrow", "rich", "matplotlib", "numpy", "pandas"}
OF_EVENTS = {"cattrs", "hashlib", "pluggy", "subprocess"}


@pytest.mark.parametrize(
    ("arguments", "never"),
    [
        ("--version", HEAVY),
        ("xyzzy", HEAVY),
        ("list", OF_RUNS | OF_EVENTS),
        ("list --json", OF_RUNS),
        ("plugins", OF_RUNS | OF_EVENTS),
        ("status none", OF_RUNS),
        ("logs none", OF_RUNS),
        ("verify none", OF_RUNS),
        ("compare none nothing", OF_RUNS),
        ("replay none --reporter a", {"torch", "stamina", "rich"}),
        ("run job.json", {"torch", "pyarrow", "matplotlib"}),
    ],
)
def test_a_command_imports_nothing_heavy_before_it_is_needed(
    imported: Callable, tmp_path: Path, arguments: str, never: set[str]
) -> None:
    (tmp_path / "job.json").write_text('{"trainer": "a:B", "max_steps": -1}')
    assert imported(*arguments.split()) & never == set()


def test_help_imports_the_modules_of_commands_and_nothing_slow(imported: Callable) -> None:
    found = imported("--help")
    assert {"click", "attrs", "hostcore_service", "hostcore_conformance"} <= found
    assert found & (HEAVY | SLOW) == set()
