"""``.. jobspec::``: every key of a job file, from the classes that job files are structured into."""

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs
from generated import GeneratedDirective, docstring, indented, title
from sphinx.application import Sphinx

from hostcore.job.forms import Key, Object, object_form
from hostcore.job.json_values import to_plain
from hostcore.job.spec import JobSpec
from hostcore.job.wording import alternatives


def _literals(text: str) -> str:
    """Single backticks, as messages have them, as reStructuredText has them."""
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)


def _default(key: Key) -> str | None:
    """The default as a job file would say it; None for a required key, or where leaving it out says nothing."""
    in_words = key.attribute.metadata.get("default")
    if in_words is not None:
        return _literals(in_words)
    default = key.attribute.default
    if isinstance(default, attrs.Factory):
        default = default.factory()
    if default is attrs.NOTHING or default is None:
        return None
    return f"``{json.dumps(to_plain(default))}``"


def _key(key: Key) -> Iterator[str]:
    default = _default(key)
    facts = [key.form.words()]
    if key.required:
        facts.append("required")
    elif default is not None:
        facts.append(f"default {default}")
    yield f"``{key.name}``"
    help_text = _literals(key.attribute.metadata.get("help", ""))
    yield from indented([f"*{facts[0]}*" + "".join(f" · {fact}" for fact in facts[1:]), "", help_text])


def _keys(cls: type[attrs.AttrsInstance]) -> Iterator[str]:
    form = object_form(cls)
    if form.shorthand:
        yield from (f"A plain string is short for an object with ``{form.shorthand}`` alone.", "")
    for key in form.keys.values():
        yield from _key(key)
    if form.rest:
        yield from ("All other keys are the settings of the plugin.", "")


def _nested(cls: type[attrs.AttrsInstance]) -> dict[type[attrs.AttrsInstance], list[str]]:
    """The objects inside an object, with the keys that hold them."""
    found: dict[type[attrs.AttrsInstance], list[str]] = {}
    for key in object_form(cls).keys.values():
        for inner in key.form.inside():
            if isinstance(inner, Object):
                found.setdefault(inner.cls, []).append(key.name)
    return found


def render() -> list[str]:
    """A section for the job, and one for every object inside it."""
    lines = [*title("The keys of a job", "-"), *_keys(JobSpec)]
    for cls, keys in _nested(JobSpec).items():
        lines += title(f"Inside {alternatives([f'``{key}``' for key in keys])}", "-")
        lines += [docstring(cls), "", *_keys(cls)]
    return lines


class JobFile(GeneratedDirective):
    """The job file reference."""

    def lines(self) -> list[str]:
        """All keys."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("jobspec", JobFile)
    return {"parallel_read_safe": True}
