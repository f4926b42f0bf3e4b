"""``.. events::``: the envelope and the payload of every event, from their classes."""

from collections.abc import Iterator
from typing import Any

from generated import GeneratedDirective, docstring, fields, indented, title
from sphinx.application import Sphinx

from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import ENDS, PAYLOADS, Event


def _fields(cls: type, without: tuple[str, ...] = ()) -> Iterator[str]:
    for field in fields(cls):
        if field.name in without:
            continue
        default = "" if field.default is None else f", default ``{field.default}``"
        first = f"``{field.name}``: ``{field.type}``{default}"
        yield f"- {first}"
        yield from indented(f"\n{field.doc}" if field.doc else "", by=2)


def _event(name: str, cls: type) -> Iterator[str]:
    yield from (f".. _event-{name}:", "")
    yield from title(name, "~")
    yield from (docstring(cls), "")
    if name in ENDS:
        yield from ("Ends the attempt.", "")
    yield from _fields(cls)


def render() -> list[str]:
    """A section for the envelope, one for every event, one for the error that ``run_failed`` carries."""
    lines = [*title("The envelope", "-"), docstring(Event), "", *_fields(Event, without=("payload",))]
    lines += [*title("The events", "-")]
    for name, cls in PAYLOADS.items():
        lines += _event(name, cls)
    return [*lines, *title("The error of run_failed", "-"), docstring(RunError), "", *_fields(RunError)]


class Events(GeneratedDirective):
    """The events reference."""

    def lines(self) -> list[str]:
        """All events."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("events", Events)
    return {"parallel_read_safe": True}
