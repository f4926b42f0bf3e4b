"""Tables for errors with a remedy: the extra that installs a plugin or command of the project, and moved names.

The host finds all of it by entry point, and works without.
"""

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hostcore.job.names import canonical
from hostcore.plugins.attribution import place
from hostcore_builtin_plugins.extras import install_command

#: Extras of ``hostcore``, by kind of plugin, ``command``, ``function`` or ``option``, and name.
EXTRAS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("callback", "chaos"): "chaos",
        ("option", "chaos"): "chaos",
        ("uploader", "chaos"): "chaos",
        ("callback", "replay-check"): "debug",
        ("callback", "step-debugger"): "debug",
        ("command", "check"): "conformance",
        ("command", "new"): "conformance",
        ("command", "compare"): "inspect",
        ("command", "debug"): "debug",
        ("command", "doctor"): "inspect",
        ("command", "environments"): "environments",
        ("command", "export"): "inspect",
        ("command", "from-lightning"): "lightning",
        ("command", "report"): "inspect",
        ("command", "rows"): "debug",
        ("command", "serve"): "service",
        ("command", "sweep"): "sweeps",
        ("environment", "uv"): "environments",
        ("data_source", "datasets"): "datasets",
        ("data_source", "delta"): "delta",
        ("data_source", "duckdb"): "duckdb",
        ("data_source", "indices"): "lightning",
        ("data_source", "lance"): "lance",
        ("data_source", "torch"): "torch",
        ("function", "merge_adapters"): "transformers",
        ("function", "plot_loss"): "inspect",
        ("function", "sweep"): "sweeps",
        ("run client", "http"): "service",
        ("run client", "https"): "service",
        ("launcher", "kubernetes-pytorchjob"): "kubernetes",
        ("launcher", "kubernetes-trainjob"): "kubernetes",
        ("launcher", "ray"): "ray",
        ("launcher", "slurm"): "slurm",
        ("launcher", "torchrun"): "torchrun",
        ("ranks", "engine"): "torchrun",
        ("reporter", "mlflow"): "mlflow",
        ("reporter", "prometheus"): "prometheus",
        ("reporter", "redis-streams"): "redis",
        ("reporter", "tensorboard"): "tensorboard",
        ("reporter", "trackio"): "trackio",
        ("reporter", "wandb"): "wandb",
        ("reporter", "webhook"): "webhook",
        ("trainer", "hf"): "transformers",
        ("trainer", "lightning"): "lightning",
        ("trainer", "meta"): "transformers",
        ("trainer", "nemo"): "lightning",
        ("trainer", "transformers"): "transformers",
        ("uploader", "mlflow-artifacts"): "mlflow",
    }
)

#: By kind: the distribution that now has what ``hostcore-builtin-plugins`` had, and the names. Plugins that came
#: later are not among them. Records of runs name the former distribution.
_MOVED: Final[Mapping[str, tuple[str, Collection[str]]]] = {
    "launcher": (
        "hostcore-engines",
        ("kubernetes-pytorchjob", "kubernetes-trainjob", "ray", "slurm", "torchrun"),
    ),
    "reporter": ("hostcore-trackers", ("mlflow", "prometheus", "redis-streams", "tensorboard", "webhook")),
    "uploader": ("hostcore-trackers", ("mlflow-artifacts",)),
}
_BUILTINS: Final = "hostcore-builtin-plugins"
#: The package whose trainers hostcore runs, too, once their imports are replaced.
FORMER: Final = "gen_worker"
#: Module and name here, by the name there. What is not listed has no counterpart.
NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "StepContext": ("hostcore_hookspecs", "StepContext"),
        "StepControlHints": ("hostcore_hookspecs", "StepControl"),
        "StepResult": ("hostcore_hookspecs", "StepResult"),
        "TrainerPlugin": ("hostcore_hookspecs", "Trainer"),
        "OptimizerBundle": ("hostcore_toolkit", "OptimizerBundle"),
        "build_default_adamw_bundle": ("hostcore_toolkit", "build_default_adamw_bundle"),
        "load_trainable_module_checkpoint": ("hostcore_toolkit", "load_trainable_module_checkpoint"),
        "save_trainable_module_checkpoint": ("hostcore_toolkit", "save_trainable_module_checkpoint"),
        "seed_everything": ("hostcore_toolkit", "seed_everything"),
        "to_float_scalar": ("hostcore_toolkit", "to_float_scalar"),
    }
)
#: For a module whose source names nothing: every trainer needs these.
_USUAL: Final = (ast.alias("StepContext"), ast.alias("StepResult"))


def how_to_install(kind: str, name: str) -> str | None:
    """Return the command that installs a plugin or command of the project; None for all others.

    :param name: As a job gives it, with its distribution or without.
    """
    distribution, _, plain = name.rpartition("/")
    extra = EXTRAS.get((kind, plain))
    owner = distribution and canonical(current_distribution(distribution, kind, plain))
    if extra is None or owner not in ("", _moved(kind)[0]):
        return None
    return install_command(extra)


def current_distribution(distribution: str, kind: str, name: str) -> str:
    """Return the distribution that has a plugin today, for one that had it when a run was recorded."""
    now, names = _moved(kind)
    return now if now and canonical(distribution) == _BUILTINS and name in names else distribution


def recorded_distribution(distribution: str, kind: str, name: str) -> str:
    """Return the distribution that records name as a plugin's: the first that had it, so that they outlive a move."""
    now, names = _moved(kind)
    return _BUILTINS if distribution == now and name in names else distribution


def _moved(kind: str) -> tuple[str | None, Collection[str]]:
    return _MOVED.get(kind, (None, ()))


def import_to_write(error: ModuleNotFoundError) -> str | None:
    """Return the line that replaces the imports from gen-worker of a module that failed; None for other modules."""
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
    """Yield the names that the source of a module imports from gen-worker."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] == FORMER:
            yield from node.names
