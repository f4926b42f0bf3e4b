"""The option ``--server``: the same command, for the jobs of a service."""

import os
from typing import Final

import click

VARIABLE: Final = "HOSTCORE_SERVER"


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
