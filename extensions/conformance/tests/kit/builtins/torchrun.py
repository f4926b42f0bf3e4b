"""How the built-in launcher ``torchrun`` is checked: with a real agent on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

KIND = "launcher"


class OneAgent:
    """The programs are the ranks of an agent here. torchrun needs some seconds to start and to end."""

    runs_here = True
    patience_seconds = 60.0


EXAMPLES: dict[str, Callable[[Path], dict[str, Any]]] = {"torchrun": lambda tmp_path: {"harness": OneAgent}}
