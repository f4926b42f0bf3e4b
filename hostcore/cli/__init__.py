"""The command line. Each command group is a module, imported when it is used: ``hostcore --help`` stays quick."""

import importlib
import io
import sys
from pathlib import Path
from typing import Final, NamedTuple

import click

from hostcore import __version__
from hostcore.cli.own_output import hide_secrets, open_closed_streams

#: 128 + SIGINT, as shells have it.
_INTERRUPTED: Final = 130


class _Command(NamedTuple):
    module: str
    #: What ``hostcore --help`` says, without importing the module.
    help: str


_COMMANDS: Final = {
    "run": _Command("hostcore.cli.run", "Run a job, watch it, report how it ended."),
    "validate": _Command("hostcore.cli.validate", "Check a job without starting it; show the plan."),
    "evaluate": _Command("hostcore.cli.evaluate", "Validate or test a checkpoint, and nothing else."),
    "list": _Command("hostcore.cli.runs", "List the runs, newest first."),
    "status": _Command("hostcore.cli.status", "Show how a run is doing, or how it ended."),
    "logs": _Command("hostcore.cli.logs", "Show what happened in a run; with -f, while it happens."),
    "cancel": _Command("hostcore.cli.cancel", "Stop a run, whatever has become of it."),
    "resume": _Command("hostcore.cli.resume", "Go on with a run, or begin a new one from a checkpoint."),
    "compare": _Command("hostcore.cli.compare", "Show in what two runs differ, and their curves in one picture."),
    "verify": _Command("hostcore.cli.verify", "Prove that a run has lost, skipped and repeated nothing."),
    "report": _Command("hostcore.cli.run_report", "Write a page about a run, for people: curves, events, failure."),
    "replay": _Command("hostcore.cli.replay", "Tell a reporter the events of a run, all or those it has missed."),
    "upload": _Command("hostcore.cli.upload", "Copy what the uploaders of a run have not copied."),
    "plugins": _Command("hostcore.cli.plugins", "Show what is installed, and what is broken and why."),
    "check": _Command("hostcore.cli.check", "Check a plugin against the contract, as its author's CI does."),
    "new": _Command("hostcore.cli.new", "Write a new plugin: a package with tests and CI, ready to publish."),
    "doctor": _Command("hostcore.cli.doctor", "Check this machine, or whether a job could run on it."),
    "serve": _Command("hostcore.cli.serve", "Take jobs over HTTP, and have launchers run them."),
    "schema": _Command("hostcore.cli.schema", "Print the JSON Schema of job files."),
}


class _Commands(click.Group):
    """Finds commands by name in a table, so that none is imported before it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name].module)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Find the command and call it. A Ctrl-C that it does not hear ends it without a word."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            _show(error)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, name the nearest."""
        if args[0] not in _COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "`hostcore --help` lists the commands."
            raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def _show(error: click.ClickException) -> None:
    """Print what is wrong with a command line, which may name files of others."""
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
