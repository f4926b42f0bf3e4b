"""``hostcore plugins``."""

import inspect
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hostcore.cli.output import echo, json_option, print_error, print_json, reports_errors, style, verbose_option, warn
from hostcore.cli.server_option import run_client, server_option
from hostcore_hookspecs.kinds import KINDS

if TYPE_CHECKING:
    from hostcore.plugins.discover import Discovered


@click.group("plugins", invoke_without_command=True)
@server_option
@json_option
@click.pass_context
@reports_errors
def plugins_command(ctx: click.Context, server: str | None, as_json: bool) -> None:
    """Show what is installed, from which distribution and version; what is broken, and why.

    Reads metadata alone: no plugin is imported, so none can fail here.
    """
    if ctx.invoked_subcommand is None:
        _list(server, as_json)


@plugins_command.command("list")
@server_option
@json_option
@reports_errors
def list_plugins(server: str | None, as_json: bool) -> None:
    """List all plugins. Same as `hostcore plugins`."""
    _list(server, as_json)


def _list(server: str | None, as_json: bool) -> None:
    from hostcore.cli.plugin_lines import conformance_cell, print_plugins
    from hostcore.plugins.discover import discover

    if server:
        run_client(server).plugins(as_json=as_json)
        return
    from hostcore.plugins.listing import shipped_reports

    found = discover()
    shipped = shipped_reports(found.refs)
    if as_json:
        from hostcore.plugins.listing import plugins_document

        print_json(plugins_document(found, shipped))
    else:
        rows = [
            (
                KINDS[ref.kind].label,
                ref.name,
                f"{ref.dist} {ref.version}",
                conformance_cell(ref, shipped.by_plugin.get(ref)),
                ref.value,
            )
            for ref in found.refs
        ]
        print_plugins(rows)
        _warn(_warnings(found))
    _warn(shipped.problems)  # a program that finds null would like to know why


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        warn(warning)


def _warnings(found: "Discovered") -> list[str]:
    from hostcore.plugins.requirements import undeclared

    warnings = []
    for (kind, name), refs in found.conflicts.items():
        origins = ", ".join(f"{ref.dist} {ref.version}" for ref in refs)
        warnings.append(f"the {KINDS[kind].label} {name!r} is provided by: {origins}; write distribution/name in a job")
    warnings += [f"{one.distribution} is broken: {one.error} ({one.path})" for one in found.broken]
    warnings += [
        f"{distribution} does not say which version of hostcore-hookspecs it was made for; it should require one"
        for distribution in undeclared(found)
    ]
    return warnings


@plugins_command.command("show")
@click.argument("name")
@json_option
@verbose_option
@reports_errors
def show_plugin(name: str, as_json: bool, verbose: bool) -> None:
    """Import the plugin NAME in a process of its own, and show its settings, hooks and capabilities.

    NAME may be qualified: distribution/name. A plugin that fails to import exits 2 and says why.
    """
    from hostcore.cli.named_plugins import describe_named
    from hostcore.cli.plugin_lines import conformance_lines, print_plugin
    from hostcore.plugins.listing import conformance_document, shipped_reports

    descriptions = describe_named([name])
    shipped = shipped_reports([one.ref for one in descriptions if one.ref and one.ref.dist])
    if as_json:
        documents = [
            {**one.as_dict(), "conformance": conformance_document(one.ref, shipped.by_plugin.get(one.ref))}
            if one.ref
            else {**one.as_dict(), "conformance": None}
            for one in descriptions
        ]
        print_json({"plugins": documents})
    else:
        for one in descriptions:
            report = shipped.by_plugin.get(one.ref) if one.ref else None
            print_plugin(one.as_dict(), conformance_lines(one.ref, report) if one.ref else ())
            _warn(one.deprecated)
            for error in one.errors:
                print_error(error, verbose=verbose)
    _warn(shipped.problems)
    if any(one.errors for one in descriptions):
        raise SystemExit(2)


@plugins_command.command("hooks")
@click.argument("kind", type=click.Choice([name.replace("_", "-") for name in KINDS]), metavar="KIND")
@json_option
def show_hooks(kind: str, as_json: bool) -> None:
    """Show the methods that plugins of KIND may have: their arguments, and when they are called.

    KIND is trainer, data-source, callback, reporter, uploader, launcher, resolver or policy.
    """
    found = KINDS[kind.replace("-", "_")]
    hooks = [
        {
            "name": name,
            "required": name in found.required,
            "arguments": list(found.arguments(name)),
            "doc": inspect.cleandoc(getattr(found.specification, name).__doc__ or ""),
        }
        for name in found.hooks
    ]
    if as_json:
        print_json({"kind": found.name, "group": found.group, "hooks": hooks})
        return
    echo(f"{found.label}: entry-point group {found.group}, settings class {found.settings_class}\n")
    for hook in hooks:
        needed = "required" if hook["required"] else "optional"
        echo(f"{style(str(hook['name']), bold=True)}({', '.join(found.arguments(str(hook['name'])))})  {needed}")
        echo(textwrap.indent(str(hook["doc"]), "    ") + "\n")
