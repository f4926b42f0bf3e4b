"""Trainers that were written for gen-worker: what to import in place of the names of ``gen_worker.trainer``."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hostcore.plugins.attribution import place

FORMER: Final = "gen_worker"

#: Module and name here, by the name there. What is not listed has no counterpart.
NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "StepContext": ("hostcore_hookspecs", "StepContext"),
        "StepControlHints": ("hostcore_hookspecs", "StepControl"),
        "StepResult": ("hostcore_hookspecs", "StepResult"),
        "TrainerPlugin": ("hostcore_hookspecs", "Trainer"),
        "OptimizerBundle": ("hostcore.toolkit", "OptimizerBundle"),
        "build_default_adamw_bundle": ("hostcore.toolkit", "build_default_adamw_bundle"),
        "load_trainable_module_checkpoint": ("hostcore.toolkit", "load_trainable_module_checkpoint"),
        "save_trainable_module_checkpoint": ("hostcore.toolkit", "save_trainable_module_checkpoint"),
        "seed_everything": ("hostcore.toolkit", "seed_everything"),
        "to_float_scalar": ("hostcore.toolkit", "to_float_scalar"),
    }
)
#: For a module whose source does not say what it wants: every trainer needs these.
_USUAL: Final = (ast.alias("StepContext"), ast.alias("StepResult"))


def import_to_write(error: ModuleNotFoundError) -> str | None:
    """The line that replaces all imports from gen-worker of a module that failed; None if it failed for another."""
    if (error.name or "").partition(".")[0] != FORMER:
        return None
    where = place(error, lambda frame: not frame.f_code.co_filename.startswith("<"))
    wanted = [*_imported(Path(where[0]))] if where else []
    names: defaultdict[str, list[str]] = defaultdict(list)
    missing = []
    for alias in wanted or _USUAL:
        if alias.name not in NAMES:
            missing.append(alias.name)
            continue
        module, name = NAMES[alias.name]
        local = alias.asname or alias.name
        names[module].append(name if local == name else f"{name} as {local}")
    line = "; ".join(f"from {module} import {', '.join(dict.fromkeys(some))}" for module, some in names.items())
    without = f"without {', '.join(missing)}, which hostcore does not have" if missing else ""
    return ", ".join(filter(None, (line and f"write: {line}", without)))


def _imported(file: Path) -> Iterator[ast.alias]:
    """What the source of a module imports from gen-worker by name."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] == FORMER:
            yield from node.names
