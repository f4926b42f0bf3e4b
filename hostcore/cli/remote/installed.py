"""``hostcore plugins --server``."""

from collections.abc import Mapping
from typing import Any

from hostcore.cli.conformance_lines import conformance_cell
from hostcore.cli.output import print_json, warn
from hostcore.cli.plugin_lines import print_plugins
from hostcore.cli.remote.answers import ForeignAnswer
from hostcore.cli.remote.client import Client
from hostcore.cli.remote.jobs import value_of
from hostcore.plugins.shipped_report import ShippedReport
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef


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
    kind, name, value, dist, version = (plugin[key] for key in ("kind", "name", "value", "distribution", "version"))
    ref = PluginRef(kind=kind, name=name, value=value, dist=dist, version=version)
    return (KINDS[kind].label, name, f"{dist} {version}", conformance_cell(ref, _report(plugin)), value)


def _report(plugin: Mapping[str, Any]) -> ShippedReport | None:
    """What its report says in a table, where no failure is told."""
    if plugin["conformance"] is None:
        return None
    checked = {key: plugin[key] for key in ("kind", "name", "distribution")}
    return value_of(ShippedReport, {**plugin["conformance"], **checked, "failures": ()})
