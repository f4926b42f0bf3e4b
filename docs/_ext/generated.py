"""What the reference directives share: fields of attrs classes, and content that is generated as reStructuredText."""

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from docutils import nodes
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import stringify_annotation


class GeneratedDirective(SphinxDirective):
    """A directive without content of its own, which may make sections."""

    def lines(self) -> Sequence[str]:
        """The reStructuredText in its place."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse the lines."""
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)


@attrs.frozen(kw_only=True)
class Field:
    """A field of an attrs class, for people to read."""

    name: str
    #: ``Mapping[str, float | None]``.
    type: str
    #: As Python writes it; None for a required field.
    default: str | None
    #: Its ``#:`` comment, as reStructuredText.
    doc: str


def title(text: str, underline: str) -> Iterator[str]:
    """A section's title."""
    yield from (text, underline * len(text), "")


def indented(lines: str | Sequence[str], by: int = 3) -> Iterator[str]:
    """The lines, as the content of what stands above them."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    yield from textwrap.indent(text, " " * by).splitlines()
    yield ""


def docstring(thing: Any) -> str:
    """A docstring, whole and without its indentation."""
    return inspect.cleandoc(thing.__doc__ or "")


def short_type(annotation: Any) -> str:
    """A type without the modules that its parts come from."""
    text = annotation if isinstance(annotation, str) else stringify_annotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _attribute_docs(cls: type) -> Mapping[str, str]:
    """The ``#:`` comments of a class and what it inherits from, by attribute."""
    docs: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__ == "builtins":
            continue
        found = ModuleAnalyzer.for_module(each.__module__).find_attr_docs()
        docs |= {name: "\n".join(lines).strip() for (owner, name), lines in found.items() if owner == each.__name__}
    return docs


def _default(attribute: "attrs.Attribute[Any]") -> str | None:
    if attribute.default is attrs.NOTHING:
        return None
    if isinstance(attribute.default, attrs.Factory):
        factory = attribute.default.factory
        return "computed" if attribute.default.takes_self else repr(factory())
    return repr(attribute.default)


def fields(cls: type) -> list[Field]:
    """The public fields of an attrs class, in order."""
    docs = _attribute_docs(cls)
    return [
        Field(name=each.name, type=short_type(each.type), default=_default(each), doc=docs.get(each.name, ""))
        for each in attrs.fields(cls)
        if not each.name.startswith("_")
    ]
