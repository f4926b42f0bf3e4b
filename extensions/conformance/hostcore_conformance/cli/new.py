"""``hostcore new``."""

import importlib.util
import os
import shlex
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli import completion
from hostcore.cli.output import echo, json_option, print_json, reports_errors, warn

if TYPE_CHECKING:
    from hostcore_conformance.scaffold.naming import Names


@click.command("new", short_help="Write a new plugin: a package with tests and CI, ready to publish.")
@click.argument("kind", metavar="KIND", shell_complete=completion.kinds)
@click.argument("name", metavar="NAME")
@click.option(
    "--into",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The folder to write it to; the working directory if not given.",
)
@click.option("--package", metavar="NAME", help="What Python imports; NAME with '_' for '-' and '.' if not given.")
@click.option("--author", metavar="NAME", help="Whose name stands in LICENSE; git's user.name if not given.")
@json_option
@reports_errors
def new_command(*, kind: str, name: str, into: Path, package: str | None, author: str | None, as_json: bool) -> None:
    """Write a pip package with a plugin that works: a folder NAME, which registers the plugin NAME.

    KIND is trainer, data-source, callback, reporter, uploader, launcher, resolver or policy. The package has the
    plugin, tests with the conformance kit, a job that uses it, CI, a README and a licence, and can be published as it
    is.
    """
    from hostcore_conformance.scaffold.naming import choose_names, kind_named
    from hostcore_conformance.scaffold.new_package import Licence, author_named, author_of_git, render, write_package

    names = choose_names(kind_named(kind), name, package)
    licence = Licence(year=date.today().year, author=author_named(author) if author is not None else None)
    if licence.author is None:
        licence = Licence(year=licence.year, author=author_of_git(into))
    target = into / names.plugin
    files = render(names, licence)
    warnings = _warnings(names)  # before the new folder is there, and can be found
    write_package(files, target.absolute())
    steps = _next_steps(names, target, has_job="job.json" in files)
    if as_json:
        print_json(
            {
                "path": str(target.absolute()),
                "kind": names.kind.name,
                "name": names.plugin,
                "package": names.package,
                "files": sorted(files),
                "warnings": warnings,
                "next": steps,
            }
        )
        return
    echo(f"{target}{os.sep} is a {names.kind.label} in a pip package of its own:")
    for file in sorted(files):
        echo(f"    {file}")
    for warning in warnings:
        warn(warning)
    echo("Next:")
    for step in steps:
        echo(f"    {step}")


def _next_steps(names: "Names", target: Path, *, has_job: bool) -> list[str]:
    """The commands to type, in a shell."""
    return [
        f"cd {shlex.quote(str(target))} && pip install -e '.[test]'",
        "hostcore run job.json" if has_job else "pytest",
        f"hostcore check {names.plugin}",
    ]


def _warnings(names: "Names") -> list[str]:
    """Warn of installed plugins with the same names. Writing the package does no harm; installing both may."""
    from hostcore.job.names import canonical
    from hostcore.plugins.installed import discover

    own = canonical(names.plugin)
    refs = discover().refs
    same = [ref for ref in refs if (ref.kind, ref.name) == (names.kind.name, names.plugin)]
    warnings = [
        f"a {names.kind.label} {names.plugin!r} of {ref.dist} {ref.version} is installed: "
        + (
            "installing the new package replaces it"
            if canonical(ref.dist or "") == own
            else f"with both installed, jobs have to say {ref.dist}/{ref.name} or {names.plugin}/{names.plugin}"
        )
        for ref in same
    ]
    module = _module_of(names.package)
    if module and not any(canonical(ref.dist or "") == own for ref in refs):
        warnings.append(
            f"there is a module {names.package!r} already ({module}): of two with one name, Python finds one; "
            "name the package otherwise with --package"
        )
    return warnings


def _module_of(package: str) -> str | None:
    """The file of an installed module; it is looked for, and not imported."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None  # a folder that happens to be in the way has none
