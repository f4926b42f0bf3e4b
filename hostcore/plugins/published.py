"""Table of the plugins and commands that the project publishes beside the host, by the extra that installs them.

For errors with a command to run: the host finds all of it by entry point, and works without.
"""

from collections.abc import Collection, Mapping
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
        ("command", "compare"): "inspect",
        ("command", "environments"): "environments",
        ("command", "report"): "inspect",
        ("command", "serve"): "service",
        ("command", "sweep"): "sweeps",
        ("environment", "uv"): "environments",
        ("data_source", "datasets"): "datasets",
        ("data_source", "delta"): "delta",
        ("data_source", "duckdb"): "duckdb",
        ("data_source", "indices"): "lightning",
        ("data_source", "lance"): "lance",
        ("function", "plot_loss"): "inspect",
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
