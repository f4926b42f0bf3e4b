"""Plugins with one method changed, from a table: most broken plugins are a reference plugin and a row of it."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

#: Makes the members of a subclass that differ from those of a base.
Change = Callable[[type], Mapping[str, Any]]


def broken(module: dict[str, Any], base: type, /, **changes: Change) -> None:
    """Put subclasses of a plugin into a module, by name, each with one change.

    :param module: The ``globals()`` of that module.
    """
    for name, change in changes.items():
        module[name] = type(name, (base,), {"__module__": module["__name__"], **change(base)})


def before(method: str, act: Callable[..., object]) -> Change:
    """Do something first.

    :param act: Takes any of ``self`` and the method's arguments, by name.
    """

    def changed(call: Callable[[], Any], known: Mapping[str, Any]) -> Any:
        _named(act, known)
        return call()

    return _around(method, changed)


def then(method: str, act: Callable[..., object]) -> Change:
    """Do something afterwards.

    :param act: Takes any of ``result``, ``self`` and the method's arguments, by name.
    """

    def changed(call: Callable[[], Any], known: Mapping[str, Any]) -> Any:
        result = call()
        _named(act, {**known, "result": result})
        return result

    return _around(method, changed)


def after(method: str, change: Callable[..., Any]) -> Change:
    """Return something else.

    :param change: Takes any of ``result``, ``self`` and the method's arguments, by name.
    """
    return _around(method, lambda call, known: _named(change, {**known, "result": call()}))


def instead(method: str, function: Callable[..., Any]) -> Change:
    """Do something else.

    :param function: Takes any of ``self``, the method's arguments, and ``call``, which does what the method does.
    """
    return _around(method, lambda call, known: _named(function, {**known, "call": call}))


def given(method: str, **arguments: Callable[..., Any]) -> Change:
    """Do it with other arguments.

    :param arguments: Each takes any of ``self`` and the method's arguments, by name.
    """

    def changed(call: Callable[..., Any], known: Mapping[str, Any]) -> Any:
        return call(**{name: _named(make, known) for name, make in arguments.items()})

    return _around(method, changed)


def having(**members: Any) -> Change:
    """Have other members: a class attribute, a method of another form."""
    return lambda _: members


def _around(method: str, function: Callable[[Callable[..., Any], Mapping[str, Any]], Any]) -> Change:
    def make(base: type) -> Mapping[str, Any]:
        original = getattr(base, method)
        signature = inspect.signature(original)

        @functools.wraps(original)  # it takes what the original takes, which the host looks at
        def changed(*args: Any, **kwargs: Any) -> Any:
            known = signature.bind(*args, **kwargs).arguments
            return function(lambda **others: original(**{**known, **others}), known)

        return {method: changed}

    return make


def _named(function: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """Call a function with what it names."""
    return function(**{name: known[name] for name in inspect.signature(function).parameters})
