"""Settings of the service: its environment, the operator's file, and the command line."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from hostcore.runs.directory import runs_dir
from hostcore.secrets.scrub import remember
from hostcore.supervisor.operator_file import OperatorFile, read_operator_file
from hostcore_hookspecs.errors import HostcoreError

TOKEN_VARIABLE: Final = "TRAINER_API_TOKEN"  # noqa: S105 - the name of a variable
DATABASE_VARIABLE: Final = "HOSTCORE_DATABASE_URL"
DEFAULT_PORT: Final = 8321
_LEAST_TOKEN: Final = 16
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class InvalidService(HostcoreError):
    """The service cannot start like this."""

    code = "service.invalid"


@attrs.frozen(kw_only=True)
class Settings:
    """One service."""

    operator: OperatorFile = attrs.field(factory=OperatorFile)
    #: The folder of all runs; absolute.
    runs: Path
    #: What every request must bring; None: every client that reaches the service may do everything.
    token: str | None = attrs.field(default=None, repr=False)
    #: The database, in place of the one that the operator's file names: a URL with a password belongs in no file.
    database_url: str | None = attrs.field(default=None, repr=False)

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the database."""
        named = self.database_url or self.operator.service.database
        return named or f"sqlite:///{self.runs / '.service' / 'jobs.sqlite'}"


def read_settings(
    *, host: str, insecure_no_auth: bool = False, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read the settings of the service.

    :param host: The address it is to listen on.
    :param insecure_no_auth: Whether ``--insecure-no-auth`` is given: it may run without a token.
    :raises HostcoreError: When they contradict each other, or the operator's file is wrong.
    """
    token = environment.get(TOKEN_VARIABLE) or None
    if token is None and not insecure_no_auth:
        raise InvalidService(
            f"{TOKEN_VARIABLE} is not set: everybody who reaches the service could start jobs",
            hint=f"export {TOKEN_VARIABLE}=$(openssl rand -hex 32); or, on this machine alone, --insecure-no-auth",
        )
    if token is not None and insecure_no_auth:
        raise InvalidService(
            f"{TOKEN_VARIABLE} is set, which contradicts --insecure-no-auth", hint="remove one of them"
        )
    if token is None and host not in LOOPBACK:
        raise InvalidService(
            f"--insecure-no-auth listens on the loopback device only, not on {host}",
            hint=f"set {TOKEN_VARIABLE}, or use --host 127.0.0.1",
        )
    if token is not None:
        _require_strong(token)
        remember(token, TOKEN_VARIABLE)
    return Settings(
        operator=read_operator_file(environment),
        runs=runs_dir(),
        token=token,
        database_url=environment.get(DATABASE_VARIABLE) or None,
    )


def _require_strong(token: str) -> None:
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidService(
            f"{TOKEN_VARIABLE} must have at least {_LEAST_TOKEN} printable ASCII characters, without spaces",
            hint="openssl rand -hex 32",
        )
