"""Whether a reporter takes what it is told, and brings it where it belongs."""

# isort: skip_file
# This is the order in which they are asked.

from hostcore_conformance.checks.reporter import serving
from hostcore_conformance.checks.reporter import events_taken
from hostcore_conformance.checks.reporter import delivery
from hostcore_conformance.checks.reporter import outages

__all__ = ["delivery", "events_taken", "outages", "serving"]
