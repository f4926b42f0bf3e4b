"""What is installed, as one document: what ``hostcore plugins --json`` prints, and the service answers."""

from typing import Any

import attrs

from hostcore.plugins.discover import Discovered
from hostcore.plugins.shipped_report import ShippedReport, ShippedReports, shipped_reports
from hostcore_hookspecs.plan import PluginRef


def plugins_document(found: Discovered, shipped: ShippedReports | None = None) -> dict[str, Any]:
    """Everything that discovery has found, as plain JSON. Imports no plugin.

    :param shipped: The conformance reports of the plugins; they are looked for if not given.
    """
    shipped = shipped or shipped_reports(found.refs)
    conflicting = found.conflicts
    plugins = [
        {
            "kind": ref.kind,
            "name": ref.name,
            "value": ref.value,
            "distribution": ref.dist,
            "version": ref.version,
            "conflict": (ref.kind, ref.name) in conflicting,
            "conformance": conformance_document(ref, shipped.by_plugin.get(ref)),
        }
        for ref in found.refs
    ]
    return {"plugins": plugins, "broken": [attrs.asdict(one) for one in found.broken]}


def conformance_document(ref: PluginRef, report: ShippedReport | None) -> dict[str, Any] | None:
    """What a shipped report says about the plugin that is installed, as plain JSON; None without a report."""
    if report is None:
        return None
    return {
        "certified": report.certified,
        "is_partial": report.is_partial,
        "summary": dict(report.summary),
        "failures": [attrs.asdict(one) for one in report.failures],
        "version": report.version,
        "is_of_installed_version": report.is_of(ref),
        "hostcore": report.hostcore,
        "api_version": report.api_version,
        "python": report.python,
        "created_ms": report.created_ms,
    }
