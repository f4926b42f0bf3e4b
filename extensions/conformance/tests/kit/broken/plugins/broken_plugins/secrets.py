"""Plugins that show a secret, or ask for one in the open."""

import attrs

from broken_plugins import sound
from hostcore_hookspecs import InvalidSettings, Secret


@attrs.frozen(kw_only=True)
class Settings:
    """How to log in."""

    token: Secret | None = None


@attrs.define(init=False, eq=False)
class Showing(sound.Resolver):
    """Keeps the value of a secret in a field that its repr shows."""

    Settings = Settings
    token: str

    def __init__(self, settings: Settings) -> None:
        self.token = settings.token.value if settings.token else ""


class Quoting(sound.Resolver):
    """Quotes the secret that it does not like."""

    Settings = Settings

    def __init__(self, settings: Settings) -> None:
        if settings.token and not settings.token.value.isdigit():
            raise InvalidSettings("/token", f"not a number: {settings.token.value}")


class Plain(sound.Resolver):
    """Shows a reference that its job gives for a plain string."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where to look."""

        url: str = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings


class Open(sound.Resolver):
    """Takes a password as plain text."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """How to log in."""

        user: str = "nobody"
        password: str | None = None
        pad_token: str = "<pad>"  # of a tokenizer: not what is broken

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
