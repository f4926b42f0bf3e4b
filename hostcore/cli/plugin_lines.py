"""Installed plugins as people are shown them, with the conformance reports that they ship."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hostcore.cli.output import echo, print_table, style
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.plugins.listing import ShippedReport


def print_plugins(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a line for each plugin: kind, name, distribution, how it conforms, where its class is."""
    print_table(("KIND", "NAME", "DISTRIBUTION", "CONFORMANCE", "VALUE"), rows)


def print_plugin(plugin: dict[str, object], conformance: Sequence[str]) -> None:
    """Print everything that is known of a plugin.

    :param conformance: Lines about how it conforms.
    """
    ref = plugin["ref"]
    assert isinstance(ref, dict)
    origin = f"{ref['dist']} {ref['version']}" if ref["dist"] else "import path"
    echo(f"{style(str(plugin['name']), bold=True)}  {KINDS[str(plugin['kind'])].label}, {origin}")
    if plugin["doc"]:
        echo(f"  {plugin['doc']}")
    echo(f"  {'value':<12}{ref['value']}")
    for key in ("hooks", "wraps"):
        names = plugin[key]
        if names:
            assert isinstance(names, tuple)
            echo(f"  {key:<12}{', '.join(names)}")
    for line in conformance:
        echo(f"  {line}")
    schema = plugin["settings_schema"]
    if isinstance(schema, dict):
        echo("  settings")
        for name, about in schema["properties"].items():
            default = f" = {about['default']!r}" if "default" in about else ""
            echo(f"    {name}: {_type(about)}{default}  {about.get('description', '')}".rstrip())


def _type(schema: Mapping[str, Any]) -> str:
    """The type that a JSON Schema allows, in a word or two."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(arm) for arm in schema["anyOf"]))
    if "$secret" in schema.get("properties", {}):
        return "secret"
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    return str(schema.get("type", "any"))


def conformance_cell(ref: PluginRef, report: "ShippedReport | None") -> str:
    """In a table: ``certified``, ``2 failed (of 0.1.0)`` if another version was checked, ``-`` without a report."""
    if report is None:
        return "-"
    return report.verdict if report.is_of(ref) else f"{report.verdict} (of {report.version or 'no version'})"


def conformance_lines(ref: PluginRef, report: "ShippedReport | None") -> Sequence[str]:
    """For one plugin: what came of the checks, with what they were made, and which failed and why."""
    if report is None:
        return ()
    from datetime import UTC, datetime

    counts = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in report.summary.items() if count)
    day = datetime.fromtimestamp(report.created_ms / 1000, tz=UTC).date()
    made = f"{day} with hostcore {report.hostcore}, contract {report.api_version}, Python {report.python}"
    lines = [f"{'conformance':<12}{conformance_cell(ref, report)}: {counts or 'nothing checked'}; {made}"]
    return [*lines, *(f"  {one.id} ({one.level}): {one.message}".rstrip(": ") for one in report.failures)]
