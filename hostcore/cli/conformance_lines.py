"""How ``hostcore plugins`` shows the conformance report that a plugin ships."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.plugins.shipped_report import ShippedReport


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
