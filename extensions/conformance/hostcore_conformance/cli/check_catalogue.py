"""Listings of ``hostcore check`` without a check: the table, and the plugins that a project registers."""

import tomllib
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.job.wording import did_you_mean, near
from hostcore_conformance.check import Check, checks_for, table
from hostcore_conformance.errors import InvalidExample
from hostcore_conformance.example import nearest_project
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS

_KIND_OF_GROUP: Final = {kind.group: kind.name for kind in KINDS.values()}


@attrs.frozen(kw_only=True)
class Told:
    """An answer for programs, and for people."""

    document: dict[str, Any]
    text: str


def list_checks(name: str | None, kind: str | None) -> Told:
    """The table of the checks.

    :param name: A kind or a plugin; None: all checks.
    :raises HostcoreError: There is neither a kind nor a plugin of that name.
    """
    kind = kind or _kind_named(name)
    checks = checks_for(kind) if kind else tuple(table().values())
    rows = [(check.id, check.level, check.since, check.title) for check in checks]
    head = ("ID", "LEVEL", "SINCE", "WHAT HOLDS FOR A GOOD PLUGIN")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)]
    return Told(document={"checks": [_about(check) for check in checks]}, text="\n".join(lines))


def _kind_named(name: str | None) -> str | None:
    if name is None:
        return None
    if name.replace("-", "_") in KINDS:
        return name.replace("-", "_")
    from hostcore_conformance.subject import find_plugin

    return find_plugin(name).kind


def explain_check(id_: str) -> Told:
    """The documentation of a check, or of a family of variants.

    :raises HostcoreError: There is no such check.
    """
    checks = [check for check in table().values() if id_ in (*check.ids, check.family)]
    if not checks:
        families = {check.family for check in table().values()}
        raise InvalidExample(
            f"there is no check {id_!r}",
            code="conformance.unknown_check",
            hint=did_you_mean(near(id_, [*table(), *families])) or "`hostcore check --list` shows them.",
        )
    first = checks[0]
    variants = [check.id for check in checks if check.id != check.family]
    facts = [
        f"level     {first.level.upper()}, since version {first.since} of the contract",
        f"for       {'every plugin' if first.kind == 'plugin' else f'every {KINDS[first.kind].label}'}",
    ]
    facts += [f"requires  {', '.join(first.requires)}"] if first.requires else []
    facts += [f"variants  {', '.join(variants)}"] if variants else []
    includes = [check.alias for check in checks if check.alias]
    facts += [f"includes  {', '.join(includes)}"] if includes else []
    title, _, rest = first.doc.partition("\n\n")
    text = "\n".join([id_, "", f"  {' '.join(title.split())}", "", *(f"  {fact}" for fact in facts)])
    if rest:
        text += "\n\n" + "\n".join(f"  {line}".rstrip() for line in rest.splitlines())
    return Told(document={"checks": [{**_about(check), "doc": check.doc} for check in checks]}, text=text)


def _about(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "level": check.level,
        "since": check.since,
        "requires": list(check.requires),
        "title": check.title,
    }


def registered_plugins(folder: Path) -> list[tuple[str, str]]:
    """The plugins that the nearest ``pyproject.toml`` registers: their qualified names, and their kinds.

    :param folder: Where it is looked for first, and then above.
    :raises HostcoreError: It cannot be read.
    """
    file = nearest_project(folder)
    if file is None:
        return []
    try:
        project: Any = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise HostcoreError(f"cannot be read: {error}", code="conformance.project", file=str(file)) from error
    groups = project.get("entry-points", {})
    return [
        (f"{project.get('name')}/{name}", _KIND_OF_GROUP[group])
        for group, entries in groups.items()
        if group in _KIND_OF_GROUP
        for name in entries
    ]
