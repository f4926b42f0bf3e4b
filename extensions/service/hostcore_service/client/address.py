"""Where a service is, as ``--server`` and ``HOSTCORE_SERVER`` say it."""

import os
import shlex
from urllib.parse import urlsplit

from hostcore.cli.server_option import VARIABLE
from hostcore_hookspecs.errors import HostcoreError


class InvalidAddress(HostcoreError):
    """No URL of a service."""

    code = "service.address"


def checked_url(text: str) -> str:
    """The address of a service, without a slash at its end.

    :raises InvalidAddress: When it is none.
    """
    hint = "such as --server https://hostcore.example.org"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidAddress(f"{text!r} is not a URL: {error}", hint=hint) from error
    if parts.username is not None or parts.password is not None:
        raise InvalidAddress(
            "a user or password in the URL of a service would end up in logs", hint="export TRAINER_API_TOKEN=…"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidAddress(f"{text!r} is not an http or https URL with a host", hint=hint)
    if parts.query or parts.fragment:
        raise InvalidAddress(f"{text!r} has a query or a fragment", hint=hint)
    return text.rstrip("/")


def words_for(url: str) -> list[str]:
    """What a command has to be told to ask the same service; nothing if the environment says it."""
    return [] if os.environ.get(VARIABLE, "").rstrip("/") == url else ["--server", url]


def shown(url: str, *words: str) -> str:
    """A command that asks the same service, as people type it: ``hostcore logs -f a --server …``."""
    return shlex.join(["hostcore", *words, *words_for(url)])
