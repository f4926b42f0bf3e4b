"""The option ``--server``: the same command, for the runs of a service."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunClient

VARIABLE: Final = "HOSTCORE_SERVER"


class NoRunClient(HostcoreError):
    """No installed package is a client of such a service."""

    code = "service.address"


def run_client(server: str | None, runs: Path) -> "RunClient":
    """Return the client for ``--server`` or, without it, for ``--runs-dir``.

    :raises HostcoreError: See :func:`service_client`.
    """
    if server:
        return service_client(server)
    from hostcore.cli.folder_client import FolderClient

    return FolderClient(runs)


def service_client(url: str) -> "RunClient":
    """Return the client of a service.

    :raises NoRunClient: When no installed distribution has one for the scheme of the URL.
    :raises BrokenExtension: When it cannot be imported, or several distributions have one.
    """
    from hostcore.plugins.extensions import load_extension
    from hostcore.plugins.installed import discover
    from hostcore_hookspecs.kinds import RUN_CLIENTS_GROUP

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
