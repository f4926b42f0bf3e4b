"""``.. hookspecs::``: every hook of every kind, from the hook specifications themselves."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from generated import GeneratedDirective, docstring, indented, title
from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature

from hostcore_hookspecs import KINDS, Kind


def _facts(kind: Kind) -> Iterator[str]:
    yield from indented(
        (
            f":Entry-point group: ``{kind.group}``",
            f":Room: {kind.room}",
            f":Settings class: ``{kind.settings_class}``, if it declares one",
            f":Required: {', '.join(f'``{name}``' for name in kind.required) or 'none'}",
        ),
        by=0,
    )
    if kind.own_methods:
        names = ", ".join(f"``{name}``" for name in kind.own_methods)
        yield from indented(f":Called on the component itself: {names}", by=0)


def _hook(kind: Kind, name: str) -> Iterator[str]:
    function: Any = getattr(kind.specification, name)
    requirement = "required" if name in kind.required else "optional"
    yield f".. py:function:: {name}{stringify_signature(signature(function), unqualified_typehints=True)}"
    yield ""
    yield from indented((f"*{kind.label}, {requirement}, called in the {kind.room}*", "", docstring(function)))


def render(kinds: Sequence[Kind] = tuple(KINDS.values())) -> list[str]:
    """A section for every kind, with its facts and its hooks in the order of the specification."""
    lines: list[str] = []
    for kind in kinds:
        module = kind.specification.__name__
        lines += [f".. py:currentmodule:: {module}", "", f".. _kind-{kind.name}:", ""]
        lines += title(kind.label.capitalize(), "-")
        lines += [inspect.cleandoc(kind.specification.__doc__ or ""), "", *_facts(kind)]
        for name in kind.hooks:
            lines += _hook(kind, name)
    return lines


class HookSpecs(GeneratedDirective):
    """The hook reference."""

    def lines(self) -> list[str]:
        """All kinds."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("hookspecs", HookSpecs)
    return {"parallel_read_safe": True}
