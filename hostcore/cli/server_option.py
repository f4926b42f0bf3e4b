"""The option ``--server``: the same command, for the jobs of a service.

What talks to a service is a run client: an entry point in ``hostcore.run_clients``, under the scheme of the service's
URL.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import RUN_CLIENTS_GROUP

VARIABLE: Final = "HOSTCORE_SERVER"


class RunClient(Protocol):
    """The commands for the jobs of one service: each does and prints what the command does for runs of this machine.

    It is made with the service's URL. Its methods raise :class:`HostcoreError`, and exit as the command does.
    """

    def run(self, job: Path, options: Mapping[str, Any], *, detach: bool, as_json: bool) -> None:
        """``hostcore run``."""

    def resume(self, run: str, *, detach: bool, quiet: bool, as_json: bool) -> None:
        """``hostcore resume``."""

    def validate(self, job: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
        """``hostcore validate``."""

    def list(self, *, statuses: Sequence[str], trainer: str | None, limit: int | None, as_json: bool) -> None:
        """``hostcore list``."""

    def status(self, run: str, *, follow: bool, as_json: bool, verbose: bool) -> None:
        """``hostcore status``."""

    def logs(
        self,
        run: str,
        *,
        follows: bool,
        lines: int | None,
        attempt: int | None,
        since: int | None,
        output: bool,
        rank: int | None,
        as_json: bool,
    ) -> None:
        """``hostcore logs``."""

    def cancel(self, run: str, *, reason: str, wait: bool, as_json: bool) -> None:
        """``hostcore cancel``."""

    def plugins(self, *, as_json: bool) -> None:
        """``hostcore plugins``."""


class NoRunClient(HostcoreError):
    """Nothing that is installed talks to such a service."""

    code = "service.address"


def run_client(url: str) -> RunClient:
    """The client for a service.

    :raises NoRunClient: When no installed distribution has one for the scheme of the URL.
    :raises BrokenExtension: When it cannot be imported, or several distributions have one.
    """
    from hostcore.plugins.discover import discover
    from hostcore.plugins.extensions import load_extension

    clients = discover().extensions_of(RUN_CLIENTS_GROUP)
    registered = clients.get(url.partition("://")[0].lower())
    if not registered:
        raise NoRunClient(f"no installed package talks to a service at {url!r}", hint=_hint(list(clients)))
    client: RunClient = load_extension(registered, type)(url)
    return client


def _hint(schemes: Sequence[str]) -> str:
    from hostcore.plugins.published import how_to_install

    if schemes:
        return f"its URL begins with {' or '.join(f'{scheme}://' for scheme in sorted(schemes))}"
    return f"`{how_to_install('run client', 'http')}` brings what does"


def _chosen(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value == "":  # this machine, for what the command starts as well
        os.environ.pop(VARIABLE, None)
    return value or None


server_option = click.option(
    "--server",
    metavar="URL",
    envvar=VARIABLE,
    callback=_chosen,
    help=f"Ask this service, instead of this machine; {VARIABLE} if not given, and '' for this machine.",
)
