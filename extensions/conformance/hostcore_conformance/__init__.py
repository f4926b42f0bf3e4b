"""The conformance kit: what a plugin's author runs in CI to know that the plugin keeps the contract.

One table of checks and three ways to make them: :func:`check_plugin`, :func:`parametrize_with_checks` for pytest, and
the command ``hostcore check``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hostcore_conformance.asking import check_plugin as check_plugin
    from hostcore_conformance.asking import report_on as report_on
    from hostcore_conformance.check import Check as Check
    from hostcore_conformance.check import checks_for as checks_for
    from hostcore_conformance.errors import ConformanceError as ConformanceError
    from hostcore_conformance.errors import InvalidExample as InvalidExample
    from hostcore_conformance.parametrize import ConformanceWarning as ConformanceWarning
    from hostcore_conformance.parametrize import parametrize_with_checks as parametrize_with_checks
    from hostcore_conformance.result import CheckResult as CheckResult
    from hostcore_conformance.result import Report as Report

_MODULES = {
    "Check": "check",
    "CheckResult": "result",
    "ConformanceError": "errors",
    "ConformanceWarning": "parametrize",
    "InvalidExample": "errors",
    "Report": "result",
    "check_plugin": "asking",
    "checks_for": "check",
    "parametrize_with_checks": "parametrize",
    "report_on": "asking",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    # Imported when used: pytest loads a plugin of this package in every environment that has hostcore.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
