"""``.. checks::``: every check of the conformance kit, from the table itself."""

import re
from collections.abc import Iterator
from typing import Any

from generated import GeneratedDirective, indented, title
from sphinx.application import Sphinx

from hostcore_conformance.check import Check, table

_SPECIAL = re.compile(r"([*|`]|(?<=\w)_(?!\w))")
_KINDS = {
    "plugin": "Every kind",
    "trainer": "Trainers",
    "data_source": "Data sources",
    "callback": "Callbacks",
    "reporter": "Reporters",
    "uploader": "Uploaders",
    "launcher": "Launchers",
    "resolver": "Resolvers",
    "policy": "Policies",
}


def _families() -> dict[str, dict[str, list[Check]]]:
    """The checks by kind and family, in the order of the table."""
    found: dict[str, dict[str, list[Check]]] = {kind: {} for kind in _KINDS}
    for check in table().values():
        found[check.kind].setdefault(check.family, []).append(check)
    return found


def _as_text(doc: str) -> str:
    """A docstring, in which ``*args`` means two characters and a word: only double backticks are markup."""
    parts = re.split(r"(``.+?``)", doc)
    return "".join(part if part.startswith("``") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def _check(family: str, checks: list[Check]) -> Iterator[str]:
    first = checks[0]
    yield from (f".. _check-{family}:", "")
    yield from title(family, "~")
    facts = [f"*{first.level.upper()}, since {first.since}*"]
    if first.requires:
        facts.append("asked after " + ", ".join(f":ref:`check-{name}`" for name in first.requires))
    yield from (" · ".join(facts), "", _as_text(first.doc), "")
    if len(checks) > 1:
        names = ", ".join(f"``{check.id}``" for check in checks)
        yield from indented(f"Variants: {names}.", by=0)
    if includes := ", ".join(f"``{check.alias}``" for check in checks if check.alias):
        yield from indented(f"Includes {includes}, whose ids it answers to.", by=0)


def render() -> list[str]:
    """A section for every kind, and in it one for every check."""
    lines: list[str] = []
    for kind, families in _families().items():
        lines += [f".. _checks-{kind}:", "", *title(_KINDS[kind], "-")]
        for family, checks in families.items():
            lines += _check(family, checks)
    return lines


class Checks(GeneratedDirective):
    """The reference of the checks."""

    def lines(self) -> list[str]:
        """All kinds."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("checks", Checks)
    return {"parallel_read_safe": True}
