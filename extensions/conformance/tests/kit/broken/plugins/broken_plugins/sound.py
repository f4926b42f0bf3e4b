"""Small plugins that are as they should be, for the others to break."""

from hostcore_hookspecs import Event, ReporterContext


class Resolver:
    """Knows no reference."""

    def resolve_ref(self, ref: str) -> str | None:
        """Leave every reference to others."""


class Reporter:
    """Counts events."""

    def __init__(self) -> None:
        self.count: int | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Count from the beginning."""
        self.count = 0

    def report_event(self, event: Event) -> None:
        """Count."""
        assert self.count is not None
        self.count += 1

    def close(self) -> None:
        """Count no more."""
        self.count = None
