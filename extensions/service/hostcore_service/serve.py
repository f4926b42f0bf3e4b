"""``hostcore serve``."""

import os
import sys

import click

from hostcore.cli.output import reports_errors
from hostcore.cli.server_option import VARIABLE


@click.command("serve", short_help="Take jobs over HTTP, and have launchers run them.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0: a free one.")
@click.option(
    "--insecure-no-auth",
    is_flag=True,
    help="Run without a token; every client that reaches the loopback device may do everything.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
@reports_errors
def serve_command(host: str, port: int, *, insecure_no_auth: bool, log_level: str) -> None:
    """Take jobs over HTTP, and have launchers run them.

    Needs TRAINER_API_TOKEN, which every request has to bring. HOSTCORE_CONFIG names the operator's file: the limits of
    jobs, their launcher, and the policies. HOSTCORE_RUNS_DIR is the folder of the runs. Jobs keep running
    while the service is down, and it finds them again.
    """
    os.environ.pop(VARIABLE, None)  # what it launches is run where it is launched
    from hostcore_service.server import serve

    sys.exit(serve(host=host, port=port, insecure_no_auth=insecure_no_auth, log_level=log_level))
