"""Plugins that cannot be made, or not as often as they should."""

from __future__ import annotations

from typing import ClassVar

import attrs

from broken_plugins import sound


def resolver() -> sound.Resolver:
    """Make one: a function, where a class is expected."""
    return sound.Resolver()


class Unmakeable(sound.Resolver):
    """Fails in its constructor."""

    def __init__(self) -> None:
        raise RuntimeError("no licence was found")


class Presumptuous(sound.Resolver):
    """Takes it that an optional setting is always given."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where models are."""

        prefix: str | None = None

    def __init__(self, settings: Settings) -> None:
        self._scheme = settings.prefix.partition(":")[0]  # type: ignore[union-attr]


class Singleton(sound.Resolver):
    """There is only one."""

    _instance: ClassVar[Singleton | None] = None

    def __new__(cls) -> Singleton:
        """Give the one there is."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance


class SharedDefault(sound.Resolver):
    """Keeps what it has seen in the default of an argument."""

    def __init__(self, seen: list[str] = []) -> None:  # noqa: B006 - this is what it breaks
        self.seen = seen


class Registered(sound.Resolver):
    """Keeps a list of all instances."""

    instances: ClassVar[list[Registered]] = []

    def __init__(self) -> None:
        self.instances.append(self)
