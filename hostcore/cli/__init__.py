"""The command line. In: arguments. Out: a call of a :class:`~hostcore.cli.run_client.RunClient`, and its data printed.

Door:

    main, cli                                 the program; a command is an entry point in ``hostcore.commands``
    RunClient and its data (run_client)       the runs of a folder, or of a service (``hostcore.run_clients``)
    run_client (server_option)                the client for ``--server`` and ``--runs-dir``
    start_and_follow, WatchedRun (follow)     start a run and follow it until it ends; Ctrl-C cancels it
    echo, print_json, fail, … (output)        everything that is printed
    job_options, AddedOptions (job_options)   options that change a job; those of others are in ``hostcore.job_options``
    ago, figure, in_columns, … (wording)      numbers, times and tables as people read them

A module in ``commands`` is one command: options, one call, output. ``hostcore --help`` imports all of them, so each
imports what it needs when it runs. The host's own commands, which no other distribution can replace, run without a
discovery of what is installed.
"""

import importlib
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hostcore import __version__
from hostcore.cli.redacting_stream import hide_secrets, open_closed_streams
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hostcore.plugins.installed import Extension

#: 128 + SIGINT, as shells have it.
_INTERRUPTED: Final = 130
#: The key of the commands in a context of click.
_FOUND: Final = "hostcore.cli.commands"
#: Has a module for each command of the host, called like the command.
_OWN: Final = "hostcore.cli.commands"


class _Commands(click.Group):
    """The installed commands; a broken one is listed with its error and hides no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(_installed(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        :raises BrokenExtension: When that fails; a line that is being completed has no such command then.
        """
        if own := _own(cmd_name):
            return own
        registered = _installed(ctx).get(cmd_name)
        try:
            return _load(registered) if registered else None
        except HostcoreError:
            if ctx.resilient_parsing:
                return None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete commands and options; a command that cannot be imported is offered without help."""
        from click.shell_completion import CompletionItem

        from hostcore.plugins.extensions import BrokenExtension

        items = []
        for name, registered in sorted(_installed(ctx).items()):
            if name.startswith(incomplete):
                try:
                    items.append(CompletionItem(name, help=_load(registered).get_short_help_str(limit=100)))
                except BrokenExtension:
                    items.append(CompletionItem(name))
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> object:
        """Find the command and call it. A Ctrl-C that it does not handle ends it silently."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            _show(error)
            sys.exit(error.exit_code)
        except HostcoreError as error:  # a broken extension: commands report their own errors
            from hostcore.cli.output import fail

            fail(error, as_json=False)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, each with the first sentence of its documentation."""
        from hostcore.plugins.extensions import BrokenExtension

        lines = []
        for name, registered in sorted(_installed(ctx).items()):
            try:
                lines.append((name, _load(registered).get_short_help_str(limit=100)))
            except BrokenExtension as error:
                lines.append((name, error.message))
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one names the package that installs it, or the nearest name."""
        if not ctx.resilient_parsing and _own(args[0]) is None and args[0] not in _installed(ctx):
            raise click.UsageError(f"No such command {args[0]!r}. {_hint(args[0], _installed(ctx))}", ctx=ctx)
        return super().resolve_command(ctx, args)


def _own(name: str) -> click.Command | None:
    """Import a command of the host itself; None if it has none of that name."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    try:
        module = importlib.import_module(f"{_OWN}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{_OWN}.{name}":
            raise
        return None
    command: click.Command | None = getattr(module, f"{name}_command", None)
    return command


def _installed(ctx: click.Context) -> "Mapping[str, Sequence[Extension]]":
    """Return the registered commands by name: several, if distributions share a name.

    Discovered once for a command line.
    """
    from hostcore.plugins.installed import discover
    from hostcore_hookspecs.kinds import COMMANDS_GROUP

    if _FOUND not in ctx.meta:
        ctx.meta[_FOUND] = discover().extensions_of(COMMANDS_GROUP)
    found: Mapping[str, Sequence[Extension]] = ctx.meta[_FOUND]
    return found


def _load(registered: "Sequence[Extension]") -> click.Command:
    from hostcore.plugins.extensions import load_extension

    return load_extension(registered, click.Command)


def _hint(name: str, installed: Iterable[str]) -> str:
    import difflib

    from hostcore.plugins.published import how_to_install

    if command := how_to_install("command", name):
        return f"`{command}` brings it."
    near = difflib.get_close_matches(name, installed, n=1)
    return f"Did you mean {near[0]!r}?" if near else "`hostcore --help` lists the commands."


def _show(error: click.ClickException) -> None:
    """Print an error of the command line, which may name files of others."""
    from hostcore.cli.output import echo

    text = io.StringIO()
    error.show(text)
    echo(text.getvalue(), nl=False, err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="hostcore")
def cli() -> None:
    """Run training jobs with trainers that were installed with pip.

    \b
        pip install my-trainer-plugin
        hostcore run job.json
    """  # noqa: D301 - click wants the character itself


def main() -> None:
    """The ``hostcore`` command."""
    open_closed_streams()
    try:
        Path.cwd()
    except FileNotFoundError:
        sys.exit("error: the working directory does not exist any more; change to one that does")
    hide_secrets()
    try:
        cli(prog_name="hostcore")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
