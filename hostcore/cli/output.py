"""What commands print: results on standard output, everything else on standard error."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, ParamSpec

import click

from hostcore import scrubbing
from hostcore.cli.own_output import scrub_streams
from hostcore.errors import all_errors, described
from hostcore.events.strict_json import dump
from hostcore.runs.result import FAILED, INVALID, REFUSED
from hostcore.scrubbing import scrub
from hostcore_hookspecs.errors import HostcoreError

P = ParamSpec("P")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show the tracebacks of plugins that fail to load.")

#: Errors that say how something ended, not that it was asked for wrongly.
_FAILURES = frozenset(
    {
        *("worker.died", "run.taken_over", "evaluation.failed"),
        *("service.unreachable", "service.full", "service.database", "service.defect", "request.too_many"),
        "plugin.transient",  # an engine that did not answer
    }
)

#: What a policy says.
_REFUSAL = "policy.denied"


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(dump(document, indent=True), nl=False)


def tell_aside(line: str) -> None:
    """Print a line about what people should know, on standard error."""
    click.echo(line, err=True)


def warn(text: str) -> None:
    """Print a warning, on standard error."""
    click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {text}", err=True)


@contextmanager
def plugins_print_aside(as_json: bool) -> Iterator[None]:
    """While it is entered, what plugins print goes to standard error, if standard output is for one JSON document."""
    if not as_json:
        yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if scrubbing.known():
            scrub_streams()  # what was not there when they became known


def print_error(error: HostcoreError, *, verbose: bool = False) -> None:
    """Print one error for people, on standard error."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {scrub(described(error))}", err=True)
    traceback = getattr(error, "traceback", "")
    if verbose and traceback:
        click.echo(scrub(traceback), err=True)


def fail(error: HostcoreError, *, as_json: bool, verbose: bool = False) -> NoReturn:
    """Print what was wrong, and exit."""
    errors = all_errors(error)
    if as_json:
        keys = ("code", "message", "pointer", "file", "hint")
        print_json({"errors": [{key: one.as_dict()[key] for key in keys} for one in errors]})
    else:
        for one in errors:
            print_error(one, verbose=verbose)
    code = errors[0].code
    sys.exit(FAILED if code in _FAILURES else REFUSED if code == _REFUSAL else INVALID)


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Print the errors that a command raises, as JSON if it was asked for JSON, and exit as documented."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except HostcoreError as error:
            for one in all_errors(error):
                if one.pointer and not one.file and kwargs.get("job"):
                    one.file = str(kwargs["job"])  # a pointer points into the job
            fail(error, as_json=bool(kwargs.get("as_json")), verbose=bool(kwargs.get("verbose")))

    return guarded


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns on standard output."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for number, row in enumerate(cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(click.style(line, bold=True) if number == 0 else line)
