"""Check that a method can be called as its hook is called."""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from types import MappingProxyType
from typing import Any

import attrs

from hostcore_hookspecs.deprecated import Deprecation

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class SignatureError(ValueError):
    """A method that its hook cannot be called on.

    :param hint: What its author has to change.
    """

    def __init__(self, message: str, hint: str | None = None, *, code: str = "plugin.signature") -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


@attrs.frozen(kw_only=True, eq=False)
class Implementation:
    """One method of a component that implements or wraps a hook."""

    hook: str
    #: The name of the method, which ``@hookimpl(specname=…)`` lets differ from the hook's.
    attribute: str
    #: Bound to the component.
    function: Callable[..., Any]
    #: The documented arguments that it takes, in its own order.
    arguments: tuple[str, ...]
    wrapper: bool = False
    #: A wrapper that is called only where metrics are recorded.
    when_recorded: bool = False
    #: It takes exactly the documented arguments, in order and by position: the host can call it as it is.
    exact: bool = False
    #: All its arguments can be passed by position and have no defaults: pluggy can call it as it is.
    plain: bool = False
    #: The component lacks the method: this is the contract's.
    by_default: bool = False


def read_method(
    function: Callable[..., Any],
    *,
    hook: str,
    attribute: str,
    documented: Sequence[str],
    removed: Mapping[str, Deprecation] = MappingProxyType({}),
    wrapper: bool = False,
) -> Implementation:
    """Check a bound method against the documented arguments of a hook.

    :param removed: Arguments that the hook had in earlier contracts.
    :raises SignatureError: It can only take named arguments, and only documented ones, and must be of the right kind.
    """
    _check_callable(function, attribute)
    _check_body(function, attribute, wrapper=wrapper)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise SignatureError(
            f"the signature of {attribute} cannot be read: {error}", "Write it as a Python method."
        ) from error
    _check_self(function, attribute, documented)
    parameters = _own(function, parameters, documented)
    _check_removed(parameters, attribute, removed)
    _check_parameters(parameters, attribute, hook, documented)
    names = tuple(parameter.name for parameter in parameters)
    by_position = all(parameter.kind in _BY_POSITION for parameter in parameters)
    return Implementation(
        hook=hook,
        attribute=attribute,
        function=function,
        arguments=names,
        wrapper=wrapper,
        exact=by_position and names == tuple(documented),
        plain=_is_plain(function, parameters) and (not wrapper or inspect.isgeneratorfunction(function)),
    )


def _is_plain(function: Callable[..., Any], parameters: Sequence[Parameter]) -> bool:
    # pluggy reads the code object, so what was decorated or bound in other ways than a method is not for it.
    written = (inspect.ismethod(function) or inspect.isfunction(function)) and not hasattr(function, "__wrapped__")
    return written and all(
        parameter.kind in _BY_POSITION and parameter.default is Parameter.empty for parameter in parameters
    )


def _check_callable(function: object, attribute: str) -> None:
    if inspect.isclass(function) or not callable(function):
        found = "a class" if inspect.isclass(function) else f"a value of type {type(function).__name__}"
        raise SignatureError(f"{attribute} is {found}, not a method", "Rename it: the name belongs to a hook.")


def _check_body(function: Callable[..., Any], attribute: str, *, wrapper: bool) -> None:
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise SignatureError(f"{attribute} is async; hooks are called, not awaited", "Write it with a plain def.")
    generator = inspect.isgeneratorfunction(inner)
    if wrapper and not generator:
        raise SignatureError(
            f"{attribute} is a wrapper without a yield", "A wrapper yields once: result = yield; return result."
        )
    if generator and not wrapper:
        raise SignatureError(
            f"{attribute} is a generator (it has a yield), so calling it would do nothing",
            "Return the value; or mark it @hookimpl(wrapper=True) if it wraps the selected component's method.",
        )


def _check_self(function: Callable[..., Any], attribute: str, documented: Sequence[str]) -> None:
    """Refuse a method without ``self``: it would get the component in place of its first argument."""
    if not inspect.ismethod(function):
        return
    parameters = list(inspect.signature(function.__func__).parameters)
    if parameters and parameters[0] in documented:
        raise SignatureError(
            f"{attribute} takes {parameters[0]!r} where a method takes 'self'",
            "Put 'self' first, or mark it @staticmethod.",
        )


def _own(function: Callable[..., Any], parameters: list[Parameter], documented: Sequence[str]) -> list[Parameter]:
    """Return the parameters without those that a ``functools.partial`` has filled in by keyword already."""
    filled: set[str] = set()
    while isinstance(function, functools.partial):
        filled.update(function.keywords)
        function = function.func
    return [parameter for parameter in parameters if parameter.name not in filled or parameter.name in documented]


def _check_removed(parameters: Sequence[Parameter], attribute: str, removed: Mapping[str, Deprecation]) -> None:
    gone = [parameter.name for parameter in parameters if parameter.name in removed]
    if gone:
        history = [f"the argument {name!r}, which {removed[name].history}" for name in gone]
        hints = [f"In place of {name!r}: {removed[name].instead}." for name in gone]
        raise SignatureError(f"{attribute} takes {', and '.join(history)}", " ".join(hints), code="plugin.removed")


def _check_parameters(parameters: Sequence[Parameter], attribute: str, hook: str, documented: Sequence[str]) -> None:
    expected = f"expected any of ({', '.join(documented)}), found ({', '.join(map(_shown, parameters))})"
    for parameter in parameters:
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise SignatureError(
                f"{attribute} takes {_shown(parameter)}; {expected}",
                "Name the arguments it needs. If a decorator hides them, it lacks functools.wraps.",
            )
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            raise SignatureError(
                f"{attribute} takes {parameter.name!r} by position only; {expected}",
                "Remove the '/' from its signature.",
            )
    unknown = [parameter.name for parameter in parameters if parameter.name not in documented]
    if unknown:
        near = difflib.get_close_matches(unknown[0], documented, n=1, cutoff=0.5)
        names = ", ".join(map(repr, unknown))
        raise SignatureError(
            f"{attribute} takes {names}, which the hook {hook} does not have; {expected}",
            f"Did you mean {near[0]!r}? Argument names are the interface."
            if near
            else "Argument names are the interface.",
        )


def _shown(parameter: Parameter) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return f"**{parameter.name}" if parameter.kind is Parameter.VAR_KEYWORD else parameter.name
