"""A resolver: ``reference:NAME`` is a file of that name in the store of the settings."""

from __future__ import annotations

import re

import attrs

from hostcore_hookspecs import HostcoreError, ResolveContext

_SCHEME = "reference:"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class ReferenceResolver:
    """Answers its own references, and nobody else's."""

    @attrs.frozen
    class Settings:
        """Settings of the resolver."""

        #: Where the files are: a URI that fsspec can open.
        store: str = "memory://models"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def resolve_ref(self, ref: str, ctx: ResolveContext) -> str | None:
        """A name is one path segment; anything else under the scheme is refused, saying so."""
        if not ref.startswith(_SCHEME):
            return None
        name = ref.removeprefix(_SCHEME)
        if _NAME.fullmatch(name) is None:
            raise HostcoreError(
                f"not a name: {name[:100]!r}", hint="a name has small letters, digits and .-_, at most a hundred"
            )
        return f"{self.settings.store}/{name}.safetensors"
