"""``.. operatorfile::`` and ``.. reservedvariables::``: the operator's file, from the classes that read it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs
from generated import GeneratedDirective, docstring, indented, title
from sphinx.application import Sphinx

from hostcore.job.forms import Key, Object, object_form
from hostcore.job.json_values import to_plain
from hostcore.supervisor.operator_file import OperatorFile
from hostcore_service.guard.environment import RESERVED


def _literals(text: str) -> str:
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)


def _default(key: Key) -> str:
    in_words = key.attribute.metadata.get("default")
    if in_words is not None:
        return _literals(in_words)
    default: Any = key.attribute.default
    value = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
    return "none" if value is None else f"``{json.dumps(to_plain(value))}``"


def _key(key: Key) -> Iterator[str]:
    yield f"``{key.name}``"
    facts = f"*{key.form.words()}* · default {_default(key)}"
    yield from indented([facts, "", _literals(key.attribute.metadata.get("help", ""))])


def _table(key: Key) -> Object | None:
    """The table that a key stands for; None for any other key."""
    return key.form if isinstance(key.form, Object) and key.form.shorthand is None else None


def render() -> list[str]:
    """The tables of the file, and then what stands beside them."""
    keys = object_form(OperatorFile).keys.values()
    lines: list[str] = []
    for key in keys:
        if table := _table(key):
            lines += [*title(f"``[{key.name}]``", "-"), docstring(table.cls).partition(": ")[2].capitalize(), ""]
            for inner in table.keys.values():
                lines += _key(inner)
    lines += title("Policies and launchers", "-")
    for key in keys:
        if not _table(key):
            lines += _key(key)
    return lines


class OperatorFileKeys(GeneratedDirective):
    """The keys of the operator's file."""

    def lines(self) -> list[str]:
        """All of them."""
        return render()


class ReservedVariables(GeneratedDirective):
    """The environment variables that no operator can open to jobs."""

    def lines(self) -> list[str]:
        """All patterns, in one paragraph."""
        return [", ".join(f"``{name}``" for name in RESERVED) + "."]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("operatorfile", OperatorFileKeys)
    app.add_directive("reservedvariables", ReservedVariables)
    return {"parallel_read_safe": True}
