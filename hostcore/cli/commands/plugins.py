"""``hostcore plugins``."""

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli import completion
from hostcore.cli.named_plugins import describe_named, environment_named, environment_option
from hostcore.cli.output import (
    echo,
    json_option,
    print_error,
    print_json,
    print_table,
    reports_errors,
    style,
    verbose_option,
    warn,
)
from hostcore.cli.server_option import run_client, server_option
from hostcore.cli.wording import NOTHING
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.plugins.listing import ShippedReport


@click.group("plugins", invoke_without_command=True)
@environment_option
@server_option
@json_option
@click.pass_context
@reports_errors
def plugins_command(ctx: click.Context, *, environment: Path | None, server: str | None, as_json: bool) -> None:
    """Show what is installed, from which distribution and version; what is broken, and why.

    Reads metadata alone: no plugin is imported, so none can fail here.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_plugins, environment=environment, server=server, as_json=as_json)
    elif environment:
        raise click.UsageError(f"--environment comes behind the command: hostcore plugins {ctx.invoked_subcommand} …")


@plugins_command.command("list")
@environment_option
@server_option
@json_option
@reports_errors
def list_plugins(*, environment: Path | None, server: str | None, as_json: bool) -> None:
    """List all plugins. Same as `hostcore plugins`."""
    from hostcore.cli.folder_client import FolderClient
    from hostcore.runs.directory import runs_dir

    if environment is None:
        found = run_client(server, runs_dir()).plugins()
    elif server:
        raise click.UsageError("--environment and --server exclude each other: a service builds no environment")
    else:
        found = FolderClient(runs_dir()).plugins(environment_named(environment).discovered)
    if as_json:
        print_json(found.document)
    else:
        rows = [
            (
                *(KINDS[ref.kind].label, ref.name, f"{ref.dist} {ref.version}"),
                *(report.verdict_of(ref) if report else NOTHING, ref.value),
            )
            for ref, report in found.plugins
        ]
        print_table(("KIND", "NAME", "DISTRIBUTION", "CONFORMANCE", "VALUE"), rows)
        _warn(found.warnings)
    _warn(found.problems)  # a program that finds null would like to know why


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        warn(warning)


@plugins_command.command("show")
@click.argument("name", shell_complete=completion.plugins())
@environment_option
@json_option
@verbose_option
@reports_errors
def show_plugin(name: str, *, environment: Path | None, as_json: bool, verbose: bool) -> None:
    """Import the plugin NAME in a process of its own, and show its settings, hooks and capabilities.

    NAME may be qualified: distribution/name. A plugin that fails to import exits 2 and says why.
    """
    from hostcore.plugins.listing import shipped_reports

    place = environment_named(environment)
    descriptions = describe_named([name], place)
    shipped = shipped_reports([one.ref for one in descriptions if one.ref.dist], place.discovered)
    reported = [(one, shipped.by_plugin.get(one.ref)) for one in descriptions]
    if as_json:
        documents = [{**one.as_dict(), "conformance": report and report.document(one.ref)} for one, report in reported]
        print_json({"plugins": documents})
    else:
        for one, report in reported:
            _print_plugin(one.as_dict(), _conformance_lines(one.ref, report))
            _warn(one.deprecated)
            for error in one.errors:
                print_error(error, verbose=verbose)
    _warn(shipped.problems)
    if any(one.errors for one in descriptions):
        raise SystemExit(2)


def _print_plugin(plugin: dict[str, object], conformance: Sequence[str]) -> None:
    """Print everything that is known of a plugin.

    :param conformance: Lines about how it conforms.
    """
    from hostcore.cli.plugin_page import takes

    ref = plugin["ref"]
    assert isinstance(ref, dict)
    origin = f"{ref['dist']} {ref['version']}" if ref["dist"] else "import path"
    echo(f"{style(str(plugin['name']), bold=True)}  {KINDS[str(plugin['kind'])].label}, {origin}")
    if plugin["doc"]:
        echo(f"  {plugin['doc']}")
    echo(f"  {'value':<12}{ref['value']}")
    for key in ("hooks", "wraps"):
        names = plugin[key]
        if names:
            assert isinstance(names, tuple)
            echo(f"  {key:<12}{', '.join(names)}")
    for line in conformance:
        echo(f"  {line}")
    schema = plugin["settings_schema"]
    if isinstance(schema, dict):
        echo("  settings")
        for name, about in schema["properties"].items():
            default = f" = {about['default']!r}" if "default" in about else ""
            echo(f"    {name}: {takes(about)}{default}  {about.get('description', '')}".rstrip())


def _conformance_lines(ref: PluginRef, report: "ShippedReport | None") -> Sequence[str]:
    """For one plugin: what came of the checks, with what they were made, and which failed and why."""
    if report is None:
        return ()
    from datetime import UTC, datetime

    counts = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in report.summary.items() if count)
    day = datetime.fromtimestamp(report.created_ms / 1000, tz=UTC).date()
    made = f"{day} with hostcore {report.hostcore}, contract {report.api_version}, Python {report.python}"
    lines = [f"{'conformance':<12}{report.verdict_of(ref)}: {counts or 'nothing checked'}; {made}"]
    return [*lines, *(f"  {one.id} ({one.level}): {one.message}".rstrip(": ") for one in report.failures)]


@plugins_command.command("directory")
@environment_option
@json_option
@reports_errors
def print_directory(*, environment: Path | None, as_json: bool) -> None:
    """Print a page about all plugins, as Markdown: what each does, what installs it, what it needs, its settings.

    Each is imported in a process of its own. A plugin that fails to import is on the page, with the reason.
    """
    from hostcore.cli.named_plugins import describe_installed
    from hostcore.cli.plugin_page import entries, page
    from hostcore.plugins.listing import shipped_reports

    place = environment_named(environment)
    shipped = shipped_reports(place.discovered.refs, place.discovered)
    listed = entries(describe_installed(place.discovered.refs, place), place.discovered, shipped)
    if as_json:
        print_json({"plugins": [one.as_dict() for one in listed]})
    else:
        echo("\n".join(["# Plugins", "", *page(listed)]).rstrip())
    _warn([*(one.sentence for one in place.discovered.broken), *shipped.problems])


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
