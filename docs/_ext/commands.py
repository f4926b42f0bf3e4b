"""``.. commands::``: every command of the command line, from the click commands themselves."""

import inspect
from collections.abc import Iterator
from typing import Any

import click
from generated import GeneratedDirective, indented, title
from sphinx.application import Sphinx


def _help(command: click.Command) -> str:
    """The help text; paragraphs that click is told not to wrap become literal blocks."""
    paragraphs = inspect.cleandoc(command.help or "").split("\f")[0].split("\n\n")
    return "\n\n".join(
        "\n".join(["::", "", *indented(each.removeprefix("\b\n"))]) if each.startswith("\b\n") else each
        for each in paragraphs
    )


def _option(option: click.Option, context: click.Context) -> Iterator[str]:
    spellings = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    yield f".. option:: {', '.join(f'{each}{value}' for each in spellings)}"
    yield ""
    facts = [option.help or ""]
    if option.multiple:
        facts.append("May be given several times.")
    if option.envvar:
        facts.append(f"Environment variable: ``{option.envvar}``.")
    yield from indented(" ".join(facts))


def _command(command: click.Command, context: click.Context, underline: str) -> Iterator[str]:
    path = context.command_path
    yield from title(path, underline)
    yield from (f".. program:: {path}", "")
    yield from indented(("::", "", f"   {path} {' '.join(command.collect_usage_pieces(context))}"), by=0)
    yield from (_help(command), "")
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts:
            yield from _option(parameter, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _command(child, click.Context(child, info_name=name, parent=context), "~")


def render() -> list[str]:
    """A section for every command and every command below it."""
    from hostcore.cli import cli

    root = click.Context(cli, info_name="hostcore", **cli.context_settings)  # click remembers the help options of these
    lines = [_help(cli), ""]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is not None and not command.hidden:
            lines += _command(command, click.Context(command, info_name=name, parent=root), "-")
    return lines


class Commands(GeneratedDirective):
    """The command line reference."""

    def lines(self) -> list[str]:
        """All commands."""
        return render()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
