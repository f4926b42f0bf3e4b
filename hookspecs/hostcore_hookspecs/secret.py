"""Secrets in the settings of a plugin."""

from typing import Final

_HIDDEN: Final = "********"


class Secret:
    """A setting that is never shown: ``token: Secret``.

    In a job it is written as a reference, ``{"$secret": "env:NAME"}`` or ``{"$secret": "file:/path"}``. A field of type
    ``str`` takes such a reference, too; a field of type ``Secret`` takes nothing else, so that no job file holds the
    value itself, and its ``repr`` does not show it.

    :param value: What must not be seen.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """What must not be seen. Take it at the last moment."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN!r})"

    def __str__(self) -> str:
        """Stars."""
        return _HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled: it would be readable in what is written")
