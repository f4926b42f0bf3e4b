"""``hostcore plugins --server``."""

from collections.abc import Mapping
from typing import Any

from hostcore.cli.output import print_json, warn
from hostcore.cli.plugin_lines import print_plugins
from hostcore.cli.remote.answers import ForeignAnswer
from hostcore.cli.remote.client import Client
from hostcore_hookspecs.kinds import KINDS


def list_remote_plugins(server: str, *, as_json: bool) -> None:
    """List the plugins that are installed where a service runs."""
    with Client.of(server) as client:
        found = client.get("/v1/plugins")
        if as_json:
            print_json(found)
            return
        try:
            rows = [_row(one) for one in found["plugins"] if one["kind"] in KINDS]
            broken = [f"{one['distribution']} is broken: {one['error']} ({one['path']})" for one in found["broken"]]
        except (KeyError, TypeError) as error:
            raise ForeignAnswer(f"{client.url} answers what is no list of plugins: {error!r}") from error
    print_plugins(rows)
    for warning in broken:
        warn(warning)


def _row(plugin: Mapping[str, Any]) -> tuple[str, ...]:
    origin = f"{plugin['distribution']} {plugin['version']}"
    return (KINDS[plugin["kind"]].label, plugin["name"], origin, _conformance(plugin), plugin["value"])


def _conformance(plugin: Mapping[str, Any]) -> str:
    """As :func:`hostcore.cli.conformance_lines.conformance_cell` has it."""
    report = plugin["conformance"]
    if report is None:
        return "-"
    counts = report["summary"]
    failed = f"{counts['failed']} failed" if counts["failed"] else f"{counts['passed']} passed"
    verdict = "certified" if report["certified"] else failed
    same = report["is_of_installed_version"]
    return verdict if same else f"{verdict} (of {report['version'] or 'no version'})"
