"""A plugin host for machine-learning training jobs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostcore.in_process import run
    from hostcore.runs.result import RunResult

__all__ = ["RunResult", "__version__", "run"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the public names when they are first used: ``hostcore --help`` needs none of them."""
    if name == "run":
        from hostcore.in_process import run

        return run
    if name == "RunResult":
        from hostcore.runs.result import RunResult

        return RunResult
    if not name.startswith("_") and not _is_module(name):
        from hostcore.plugins.extensions import installed_function

        return installed_function(name)
    raise AttributeError(f"module 'hostcore' has no attribute {name!r}", name=name)


def _is_module(name: str) -> bool:
    """Return whether a name is a module of the host, which Python looks for here before it imports it."""
    from importlib.util import find_spec

    return find_spec(f"{__name__}.{name}") is not None
