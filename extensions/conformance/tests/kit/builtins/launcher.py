"""How the built-in launchers are checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class ThisMachine:
    """``local`` starts programs here, where the checks can look at them."""

    runs_here = True


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {"local": lambda tmp_path: {"harness": ThisMachine}}
