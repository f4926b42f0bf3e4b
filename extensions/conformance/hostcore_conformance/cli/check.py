"""``hostcore check``."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.named_plugins import environment_named, environment_option, installed_as
from hostcore.cli.output import echo, echo_json, fail
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS

if TYPE_CHECKING:
    from hostcore.supervisor.environment import JobEnvironment
    from hostcore_conformance.cli.check_lines import CheckLines
    from hostcore_conformance.process.exchange import CheckRequest
    from hostcore_conformance.result import Report

_TERMINATED: Final = 128 + signal.SIGTERM
#: Longer than any check takes, on any machine.
_TIMEOUT_SECONDS: Final = 120.0


@attrs.frozen(kw_only=True)
class _Files:
    """Paths of the reports."""

    #: ``-``: standard output.
    json: str | None
    junit: Path | None
    badge: Path | None

    @property
    def as_json(self) -> bool:
        """True if standard output is for one JSON document."""
        return self.json == "-"


def _kind(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    kind = value and value.replace("-", "_")
    if kind and kind not in KINDS:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(name.replace('_', '-') for name in KINDS)}")
    return kind


def _settings(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    import json

    try:
        settings = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise click.BadParameter(f"a JSON object is needed, as in a job: {value} is none")
    return settings


@click.command("check", short_help="Check a plugin against the contract, as its author's CI does.")
@click.argument("name", required=False, shell_complete=completion.plugins())
@click.option("--kind", callback=_kind, help="The kind, where plugins of several kinds share the name.")
@click.option(
    "--job",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A small job that uses the plugin, for trainers and callbacks.",
)
@environment_option
@click.option("--settings", callback=_settings, metavar="JSON", help="The settings of all other kinds.")
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    help="Make this check alone, or those of a pattern: 'trainer.*'. May be given several times.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON; - is standard output.")
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the results as JUnit XML, for CI servers."
)
@click.option(
    "--badge",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a badge for the README: SVG, or for shields.io if FILE ends with .json.",
)
@click.option(
    "--certified", is_flag=True, help="Exit 1 unless the plugin is certified: nothing failed, or was left out."
)
@click.option(
    "--partial", is_flag=True, help="Exit 0 though checks could not be asked, because there is no example of its use."
)
@click.option("--list", "listing", is_flag=True, help="List the checks, of the kind or the plugin NAME; make none.")
@click.option("--explain", metavar="ID", help="Describe a check, and how to come to pass it; make none.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="End a check that takes longer; it has failed.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the plugin prints, and tracebacks.")
def check_command(
    name: str | None,
    *,
    kind: str | None,
    json_file: str | None,
    junit: Path | None,
    badge: Path | None,
    certified: bool,
    partial: bool,
    listing: bool,
    explain: str | None,
    environment: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Check the plugin NAME against the contract, as its author's CI does.

    The checks are made in a process of their own: a plugin that kills it has failed the check that was being made. What
    they work with (a small job, settings, a harness, known failures) is in the nearest pyproject.toml, under
    [tool.hostcore.conformance.NAME].

    Without NAME, all plugins that the nearest pyproject.toml registers. NAME may be distribution/name, or an import
    path with --kind. Exits 0 if the plugin conforms, 1 if it does not, or if much could not be asked because there is
    no example of its use (--partial accepts that), and 2 if it cannot be checked.
    """
    from hostcore.runs.result import FAILED

    if certified and partial:
        raise click.UsageError("--certified and --partial exclude each other")
    files = _Files(json=json_file, junit=junit, badge=badge)
    try:
        _require_writable(files)
        if listing or explain:
            from hostcore_conformance.cli.check_catalogue import explain_check, list_checks

            told = explain_check(explain) if explain else list_checks(name, kind)
            _write_or_print(told.document, files, told.text)
            return
        with _ending_on_sigterm():
            place = environment_named(environment) if environment else None
            reports = _check(_requests(name, kind, options), files, place, verbose=verbose, certified=certified)
        _write(reports, files, partial=partial)
    except HostcoreError as error:
        fail(error, as_json=files.as_json, verbose=verbose)
    if not all(_passes(report, certified=certified, partial=partial) for report in reports):
        sys.exit(FAILED)


def _passes(report: "Report", *, certified: bool, partial: bool) -> bool:
    return report.certified if certified else report.ok and (partial or report.is_fully_checked)


def _requests(name: str | None, kind: str | None, options: dict[str, Any]) -> list["CheckRequest"]:
    from hostcore_conformance.process.exchange import CheckRequest

    plugins = [(name, kind)] if name else _registered_here(kind)
    job: Path | None = options["job"]
    if len(plugins) > 1 and (job or options["settings"] is not None):
        raise click.UsageError("--job and --settings are about one plugin: give its NAME.")
    return [
        CheckRequest(
            name=one,
            kind=its_kind,
            settings=options["settings"],
            job=str(job.absolute()) if job else None,
            only=options["only"],
            start=str(Path.cwd()),
            timeout_seconds=options["timeout"],
        )
        for one, its_kind in plugins
    ]


def _registered_here(kind: str | None) -> list[tuple[str, str | None]]:
    """The plugins of the project that the working directory is in."""
    from hostcore_conformance.cli.check_catalogue import registered_plugins

    found: list[tuple[str, str | None]] = [
        (name, its) for name, its in registered_plugins(Path.cwd()) if kind in (None, its)
    ]
    if not found:
        raise click.UsageError("Which plugin? Give its NAME; `hostcore plugins` lists what is installed.")
    return found


def _check(
    requests: Sequence["CheckRequest"],
    files: _Files,
    environment: "JobEnvironment | None",
    *,
    verbose: bool,
    certified: bool,
) -> list["Report"]:
    from hostcore.errors import Errors, all_errors
    from hostcore_conformance.cli.check_lines import CheckLines

    lines = CheckLines(aside=files.as_json, verbose=verbose)
    reports = []
    errors: list[HostcoreError] = []
    for request in requests:
        try:
            report = _check_one(request, _python_for(request, environment), lines)
        except HostcoreError as error:
            errors += all_errors(error)  # the other plugins of a project are checked all the same
            continue
        lines.sum_up(report, certified=certified)
        reports.append(report)
    if errors:
        raise Errors(errors)
    return reports


def _python_for(request: "CheckRequest", environment: "JobEnvironment | None") -> str:
    """Return the Python for the checks of a plugin.

    :raises HostcoreError: When the environment does not have the plugin, or has not this kit.
    """
    if environment is None:
        return sys.executable
    from hostcore_conformance.process.parent import require_kit

    refs = installed_as(request.name, environment.discovered) if ":" not in request.name else []
    kinds = {request.kind} if request.kind else {ref.kind for ref in refs}
    python = next((environment.python_of(kind) for kind in KINDS if kind in kinds), sys.executable)
    if python != sys.executable:
        require_kit(python, environment.discovered.worker_path or ())
    return python


def _check_one(request: "CheckRequest", python: str, lines: "CheckLines") -> "Report":
    from hostcore.errors import Errors
    from hostcore.plugins.errors import of_content
    from hostcore_conformance.asking import report_on
    from hostcore_conformance.process.exchange import Ended, Opened, Refused
    from hostcore_conformance.process.parent import ask

    results = []
    opened = None
    with lines.live(), closing(ask(request, python)) as events:
        for event in events:
            if isinstance(event, Refused):
                raise Errors(of_content(event.errors))
            if isinstance(event, Opened):
                opened = event
            elif isinstance(event, Ended) and (event.wanted or event.result.status == "failed"):
                results.append(event.result)  # also why what was asked for is blocked
            lines.show(event)
    assert opened is not None
    return report_on(opened.ref, results, complete=opened.complete)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """While it is entered, being asked to end leaves nothing behind: the process of the checks, and its files."""

    def end(*_: object) -> None:
        sys.exit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_writable(files: _Files) -> None:
    from hostcore_conformance.report_files import require_writable

    named = {"--json": files.json, "--junit": files.junit, "--badge": files.badge}
    for option, file in named.items():
        if file is not None and file != "-":
            require_writable(Path(file), option)


def _write(reports: Sequence["Report"], files: _Files, *, partial: bool) -> None:
    from hostcore_conformance.report_files import as_endpoint, as_json, as_junit, as_svg, write_whole

    if files.as_json:
        echo_json(as_json(reports))
    elif files.json:
        write_whole(Path(files.json), as_json(reports))
    if files.junit:
        write_whole(files.junit, as_junit(reports, partial=partial))
    if files.badge:
        write_whole(files.badge, as_endpoint(reports) if files.badge.suffix == ".json" else as_svg(reports))


def _write_or_print(document: Any, files: _Files, text: str) -> None:
    import json

    from hostcore_conformance.report_files import write_whole

    written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if files.as_json:
        echo_json(written)
        return
    if files.json:
        write_whole(Path(files.json), written)
    echo(text)
