"""Entry points that extend the host: commands and their options, functions, clients and sections of services.

Builders of environments, too. No job names them.

The modules of commands are imported by every ``hostcore --help``, so this one imports nothing heavy.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar

from hostcore.interruption import is_by_signal
from hostcore.plugins.installed import Extension, module_and_symbol, package_of
from hostcore_hookspecs.errors import HostcoreError

T = TypeVar("T")


class BrokenExtension(HostcoreError):
    """An extension that cannot be imported, is of another type than expected, or is provided twice."""

    code = "plugin.extension"


def load_extension(registered: Sequence[Extension], expected: type[T]) -> T:
    """Import the object that an entry point names.

    :param registered: Those of one name; one, unless several distributions have it.
    :param expected: What it must be an instance of.
    :raises BrokenExtension: When it cannot be used; the message names the distributions.
    """
    first = registered[0]
    if len(registered) > 1:
        provided = ", ".join(f"{one.dist} {one.version}" for one in registered)
        raise BrokenExtension(f"{first.name!r} is provided by: {provided}", hint="uninstall all but one of them")
    broken = f"{first.name!r} of {first.dist} {first.version} is broken"
    try:
        found = _imported(first)
    except BaseException as error:
        if is_by_signal(error):
            raise
        raise _from_exception(broken, first, error) from error
    if not isinstance(found, expected):
        raise BrokenExtension(f"{broken}: {first.value} is no {expected.__module__}.{expected.__qualname__}")
    return found


def installed_function(name: str) -> Callable[..., Any]:
    """Return the function that ``hostcore.NAME`` is because a distribution registers it.

    :raises AttributeError: When none does; the message has the command for one that the project publishes.
    :raises BrokenExtension: When it cannot be used.
    """
    from hostcore.plugins.installed import discover
    from hostcore.plugins.published import how_to_install
    from hostcore_hookspecs.kinds import FUNCTIONS_GROUP

    registered = discover().extensions_of(FUNCTIONS_GROUP).get(name)
    if not registered:
        command = how_to_install("function", name)
        more = f"; `{command}` brings it" if command else ""
        raise AttributeError(f"module 'hostcore' has no attribute {name!r}{more}", name=name)
    return load_extension(registered, FunctionType)


def _imported(extension: Extension) -> Any:
    module, symbol = module_and_symbol(extension.value)
    return functools.reduce(getattr, symbol.split("."), importlib.import_module(module))


def _from_exception(broken: str, extension: Extension, error: BaseException) -> BrokenExtension:
    """Convert an exception of a distribution's code, with the place in it."""
    from hostcore.plugins.attribution import in_package, place
    from hostcore.plugins.errors import one_line
    from hostcore_builtin_plugins.extras import pip_source

    at = place(error, in_package(package_of(extension.value)))
    where = f" ({at[0]}:{at[1]})" if at else ""
    return BrokenExtension(
        f"{broken}: {one_line(error)}{where}",
        hint=f"pip install --force-reinstall {pip_source(extension.dist)}, or uninstall it",
    )
