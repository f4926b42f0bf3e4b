"""A page about installed plugins, as Markdown: what ``hostcore plugins directory`` prints, and the reference shows."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.job.names import canonical
from hostcore.plugins.describe import Description
from hostcore.plugins.installed import Discovered, distribution_on
from hostcore.plugins.listing import ShippedReport, ShippedReports
from hostcore.plugins.published import EXTRAS
from hostcore_builtin_plugins.control_characters import visible
from hostcore_builtin_plugins.extras import clone_of_hostcore, install_command
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: What every installation of the host has.
_HOST: Final = ("hostcore", "hostcore-hookspecs", "hostcore-toolkit", "hostcore-builtin-plugins")
_REQUIRED: Final = "required"
_SYSTEM: Final = "Operating System :: "
#: Bounds of a number, as JSON Schema calls them.
_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_CODE: Final = re.compile(r"(``.+?``|`[^`]+`)")
_MARKUP: Final = re.compile(r"([\\*_\[\]<>|#])")


@attrs.frozen(kw_only=True)
class PluginEntry:
    """An installed plugin, and the facts on its page."""

    ref: PluginRef
    description: Description
    #: The command that installs it; None for what comes with the host.
    install: str | None
    #: What it needs beyond what the host has: requirements as PEP 508 writes them.
    requires: Sequence[str]
    #: The versions of Python that its distribution takes; None for any.
    python: str | None
    #: The operating systems that the classifiers of its distribution name.
    systems: Sequence[str]
    report: ShippedReport | None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: what ``hostcore plugins show --json`` has, and how it is installed."""
        return {
            **self.description.as_dict(),
            "install": self.install,
            "requires": list(self.requires),
            "python": self.python,
            "systems": list(self.systems),
            "conformance": self.report and self.report.document(self.ref),
        }


def entries(descriptions: Sequence[Description], found: Discovered, shipped: ShippedReports) -> list[PluginEntry]:
    """The entries of plugins, in the order of their descriptions.

    :param descriptions: Of plugins that are installed.
    :param found: Where they were found.
    :param shipped: Their conformance reports.
    """
    host = {one.name for name in _HOST for one in _requirements(name, None)}
    return [
        _entry(one, found.path_of(one.ref), host, shipped.by_plugin.get(one.ref))
        for one in descriptions
        if one.ref.dist
    ]


def _entry(one: Description, path: Sequence[str] | None, host: set[str], report: ShippedReport | None) -> PluginEntry:
    ref = one.ref
    assert ref.dist is not None
    metadata = distribution_on(path, ref.dist).metadata
    extra, inner = _extra(ref)
    needed = [need for need in _requirements(ref.dist, path, *inner) if need.name not in host]
    return PluginEntry(
        ref=ref,
        description=one,
        install=_install(ref.dist, extra),
        requires=[f"{need.name}{need.specifier}" for need in needed if canonical(need.name) not in _HOST],
        python=next(iter(metadata.get_all("Requires-Python", [])), None),
        systems=[line.removeprefix(_SYSTEM) for line in metadata.get_all("Classifier", []) if line.startswith(_SYSTEM)],
        report=report,
    )


def _install(distribution: str, extra: str | None) -> str | None:
    if extra:
        return install_command(extra).replace(f"{clone_of_hostcore()}/", "./")  # a clone of any place
    return None if canonical(distribution) in _HOST else f"pip install {distribution}"


def _extra(ref: PluginRef) -> tuple[str | None, tuple[str, ...]]:
    """The extra of ``hostcore`` that brings a plugin, and the extras of its own distribution that are meant by it."""
    extra = EXTRAS.get((ref.kind, ref.name))
    for need in _requirements("hostcore", None, *filter(None, [extra])):
        if extra and canonical(need.name) == canonical(ref.dist or ""):
            return extra, tuple(need.extras)
    return None, ()


def _requirements(distribution: str, path: Sequence[str] | None, *extras: str) -> "list[Requirement]":
    """Return the requirements of a distribution on this machine, with some of its extras."""
    from packaging.requirements import Requirement

    try:
        lines = distribution_on(path, distribution).requires or []
    except PackageNotFoundError:
        return []
    return [
        one
        for one in map(Requirement, lines)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def page(listed: Sequence[PluginEntry]) -> Iterator[str]:
    """The lines of the page, without a title: a section for each kind, with a table and a section for each plugin."""
    for kind in KINDS.values():
        of_kind = [one for one in listed if one.ref.kind == kind.name]
        if not of_kind:
            continue
        label = kind.label[0].upper() + kind.label[1:]
        yield from (f"## {label}s" if not label.endswith("y") else f"## {label[:-1]}ies", "")
        yield from ("| name | does | comes with |", "|---|---|---|")
        for one in of_kind:
            yield f"| `{one.ref.name}` | {_text(one.description.doc)} | {_origin(one)} |"
        yield ""
        for one in of_kind:
            yield from (f"### {label} `{one.ref.name}`", "", *_section(one))


def _origin(one: PluginEntry) -> str:
    return f"`{one.ref.dist}` {one.ref.version}"


def _section(one: PluginEntry) -> Iterator[str]:
    yield from (_text(one.description.doc), "")
    facts = {
        "from": f"{_origin(one)}, `{one.ref.value}`",
        "install": f"`{one.install}`" if one.install else "comes with hostcore",
        "needs": ", ".join(f"`{need}`" for need in one.requires),
        "Python": one.python and f"`{one.python}`",
        "system": _text(", ".join(one.systems)),
        "can": _capabilities(one.description) if one.ref.kind == "trainer" else "",
        "wraps": ", ".join(f"`{name}`" for name in one.description.wraps),
        "conformance": one.report.verdict_of(one.ref) if one.report else "the package ships no report",
    }
    yield from (f"- {name}: {fact}" for name, fact in facts.items() if fact)
    yield from (f"- cannot be used here: {_text(error.message)}" for error in one.description.errors)
    yield ""
    if rows := list(settings_of(one.description.settings_schema or {})):
        yield from (f"| {KINDS[one.ref.kind].settings_class.lower()} | takes | default | |", "|---|---|---|---|")
        for name, takes, default, about in rows:
            value = default if default in (None, _REQUIRED) else f"`{_code(default)}`"
            yield f"| `{name}` | {_text(takes)} | {value or ''} | {_text(about)} |"
        yield ""


def _capabilities(description: Description) -> str:
    found = description.capabilities
    also = {"accumulation": found.accumulate, "several ranks": found.distributed}
    return ", ".join([*found.precisions, *(name for name, has in also.items() if has)])


def settings_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None, str]]:
    """The settings of a JSON Schema: name, what it takes, default as JSON or ``required``, and what it is for.

    Settings inside of objects come behind them: ``lora.rank``, ``callbacks[].use``.
    """
    yield from _settings(schema, schema.get("$defs", {}), "", depth=3)


def _settings(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str, *, depth: int
) -> Iterator[tuple[str, str, str | None, str]]:
    required = schema.get("required", ())
    for name, about in schema.get("properties", {}).items():
        told = json.dumps(about["default"], ensure_ascii=False) if "default" in about else None
        default = _REQUIRED if name in required else told
        yield prefix + name, takes(about), default, about.get("description", "")
        for suffix, inner in _objects(about, definitions):
            if depth:
                yield from _settings(inner, definitions, f"{prefix}{name}{suffix}.", depth=depth - 1)


def _objects(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects with settings of their own that a value may be, or have as elements: ``[]``."""
    if "$ref" in schema:
        yield "", definitions.get(schema["$ref"].rpartition("/")[2], {})
    for arm in schema.get("anyOf", ()):
        yield from _objects(arm, definitions)
    if isinstance(schema.get("items"), Mapping):
        yield from (("[]" + suffix, inner) for suffix, inner in _objects(schema["items"], definitions))


def takes(schema: Mapping[str, Any]) -> str:
    """Describe the values of a JSON Schema in a word or two: ``integer, ≥ 0``, ``list of string``, ``"a" or "b"``."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(takes(arm) for arm in schema["anyOf"]))
    if "$secret" in schema.get("properties", {}):
        return "secret"
    if "enum" in schema:
        return " or ".join(json.dumps(one, ensure_ascii=False) for one in schema["enum"])
    if schema.get("format") == "python-import-path":
        return "import path"
    if "$ref" in schema:
        return "object"
    inner = schema.get("items") or schema.get("additionalProperties")
    of = f" of {takes(inner)}" if isinstance(inner, Mapping) and inner else ""
    name = str(schema.get("type", "any"))
    bounds = [f"{sign} {schema[bound]}" for bound, sign in _BOUNDS.items() if bound in schema]
    return ", ".join([("list" if name == "array" else name) + of, *bounds])


def _text(text: str) -> str:
    """Text of plugins as Markdown: it keeps its code, and is nothing but text otherwise."""
    parts = _CODE.split(visible(" ".join(text.split())))
    return "".join(
        f"`{_code(part.strip('`'))}`" if number % 2 else _MARKUP.sub(r"\\\1", part) for number, part in enumerate(parts)
    )


def _code(text: str) -> str:
    """Code in a cell of a table."""
    return visible(text, one_line=True).replace("|", "\\|").replace("`", "'")
