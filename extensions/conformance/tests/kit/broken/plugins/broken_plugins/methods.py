"""Plugins whose methods the host cannot call, or would never call."""

from typing import Any

from broken_plugins import sound


class Incomplete:
    """Lacks the method that makes it a resolver."""


class Misnamed(sound.Resolver):
    """Takes an argument that the hook does not have."""

    def resolve_ref(self, reference: str) -> str | None:
        """Leave every reference to others."""


class Awaited(sound.Resolver):
    """Is to be awaited."""

    async def resolve_ref(self, ref: str) -> str | None:
        """Leave every reference to others."""


class Gathering(sound.Resolver):
    """Takes anything."""

    def resolve_ref(self, *args: Any, **kwargs: Any) -> str | None:
        """Leave every reference to others."""


class Mistyped:
    """Has a method that looks like close, and is never called."""

    def report_event(self, event: Any) -> None:
        """Drop it."""

    def clsoe(self) -> None:
        """End."""
