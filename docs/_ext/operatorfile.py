"""``.. operatorfile::`` and ``.. reservedvariables::``: the operator's file, from the classes that read it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs
from generated import GeneratedDirective, docstring, indented, title
from sphinx.application import Sphinx

from hostcore.job.forms import Key, bare, expected, object_form
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
    facts = f"*{expected(key.form)}* · default {_default(key)}"
    yield from indented([facts, "", _literals(key.attribute.metadata.get("help", ""))])


def _is_table(key: Key) -> bool:
    form, _ = bare(key.form)
    return isinstance(form, type) and attrs.has(form) and object_form(form).shorthand is None


def render() -> list[str]:
    """The tables of the file, and then what stands beside them."""
    keys = object_form(OperatorFile).keys.values()
    lines: list[str] = []
    for table in filter(_is_table, keys):
        cls, _ = bare(table.form)
        lines += [*title(f"``[{table.name}]``", "-"), docstring(cls).partition(": ")[2].capitalize(), ""]
        for key in object_form(cls).keys.values():
            lines += _key(key)
    lines += title("Policies and launchers", "-")
    for key in keys:
        if not _is_table(key):
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
