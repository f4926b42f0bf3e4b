"""The token of a Ray cluster, found where Ray's own programs find it."""

import os
from pathlib import Path
from typing import Final

from hostcore_hookspecs import FatalError, Secret

_MODE: Final = "RAY_AUTH_MODE"
_TOKEN: Final = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_PATH: Final = "RAY_AUTH_TOKEN_PATH"  # noqa: S105
_DEFAULT_PATH: Final = Path(".ray", "auth_token")


def token_for(given: Secret | None) -> str | None:
    """The token to send: the one given, or what Ray would take from the environment; None: none.

    :raises FatalError: When it cannot be read, or cannot be sent.
    """
    if given is not None:
        token = given.value.strip()
    elif os.environ.get(_MODE, "").lower() == "disabled":
        return None
    else:
        token = os.environ.get(_TOKEN, "").strip() or _from_file()
    if not token.isascii() or not token.isprintable():
        raise FatalError("the token has characters that no token of Ray's has", pointer="/launcher/token")
    return token or None


def _from_file() -> str:
    named = os.environ.get(_TOKEN_PATH)
    path = Path(named).expanduser() if named else Path.home() / _DEFAULT_PATH
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        if named:
            raise FatalError(f"{_TOKEN_PATH} names a file that does not exist", file=named) from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"cannot read the token: {error}", file=str(path)) from error
