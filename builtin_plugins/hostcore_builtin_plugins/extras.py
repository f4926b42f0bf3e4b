"""Libraries that a plugin needs, and that an extra of hostcore installs."""

import importlib.util

from hostcore_hookspecs import HostcoreError


def require(module: str, *, extra: str) -> None:
    """Check that a library is installed, without importing it.

    :param module: Its top-level module: ``mlflow``.
    :param extra: The extra that brings it.
    :raises HostcoreError: ``plugin.extra_missing``.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: something has taken its place in sys.modules
        spec = None
    if spec is None:
        raise HostcoreError(
            f"the library {module} is not installed",
            code="plugin.extra_missing",
            hint=f"pip install 'hostcore[{extra}]', in the environment that hostcore runs in",
        )
