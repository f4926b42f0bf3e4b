"""What the project publishes beside the host, by the extra that installs it: for errors that say what to install.

The host finds all of it by entry point, and works without. This is a table of names, like a registry of optional
packages.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hostcore.job.names import canonical
from hostcore_builtin_plugins.extras import install_command

#: Extras of ``hostcore``, by kind of plugin, ``command``, ``function`` or ``option``, and name.
EXTRAS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("callback", "chaos"): "chaos",
        ("option", "chaos"): "chaos",
        ("uploader", "chaos"): "chaos",
        ("command", "check"): "conformance",
        ("command", "new"): "conformance",
        ("command", "environments"): "environments",
        ("command", "serve"): "service",
        ("command", "sweep"): "sweeps",
        ("environment", "uv"): "environments",
        ("data_source", "datasets"): "datasets",
        ("data_source", "delta"): "delta",
        ("data_source", "duckdb"): "duckdb",
        ("data_source", "indices"): "lightning",
        ("data_source", "lance"): "lance",
        ("function", "sweep"): "sweeps",
        ("run client", "http"): "service",
        ("run client", "https"): "service",
        ("launcher", "kubernetes-pytorchjob"): "kubernetes",
        ("launcher", "kubernetes-trainjob"): "kubernetes",
        ("launcher", "ray"): "ray",
        ("launcher", "slurm"): "slurm",
        ("launcher", "torchrun"): "torchrun",
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

#: Distributions that now have what ``hostcore-builtin-plugins`` had, by kind. Records of runs name the former one.
_MOVED_TO: Final = {
    "launcher": "hostcore-engines",
    "reporter": "hostcore-trackers",
    "uploader": "hostcore-trackers",
}
#: What it had. Plugins that came later are recorded by the distribution that has them.
_MOVED: Final = frozenset(
    {
        ("launcher", "kubernetes-pytorchjob"),
        ("launcher", "kubernetes-trainjob"),
        ("launcher", "ray"),
        ("launcher", "slurm"),
        ("launcher", "torchrun"),
        ("reporter", "mlflow"),
        ("reporter", "prometheus"),
        ("reporter", "redis-streams"),
        ("reporter", "tensorboard"),
        ("reporter", "webhook"),
        ("uploader", "mlflow-artifacts"),
    }
)
_BUILTINS: Final = "hostcore-builtin-plugins"


def how_to_install(kind: str, name: str) -> str | None:
    """The command that installs a plugin or command of the project; None for all others.

    :param name: As a job gives it, with its distribution or without.
    """
    distribution, _, plain = name.rpartition("/")
    extra = EXTRAS.get((kind, plain))
    owner = distribution and canonical(current_distribution(distribution, kind, plain))
    if extra is None or owner not in ("", _MOVED_TO.get(kind)):
        return None
    return install_command(extra)


def current_distribution(distribution: str, kind: str, name: str) -> str:
    """The distribution that has a plugin today, for one that had it when a run was recorded."""
    moved = canonical(distribution) == _BUILTINS and (kind, name) in _MOVED
    return _MOVED_TO[kind] if moved else distribution


def recorded_distribution(distribution: str, kind: str, name: str) -> str:
    """The distribution that records name as a plugin's: the first one that had it, so that they outlive a move."""
    moved = distribution == _MOVED_TO.get(kind) and (kind, name) in _MOVED
    return _BUILTINS if moved else distribution
