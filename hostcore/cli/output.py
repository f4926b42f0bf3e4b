"""Output of commands: results on standard output, everything else on standard error.

All of it goes through :func:`echo`, :func:`echo_json` or :class:`OutputEcho`. What they print may come from a job, a
plugin, a file or a server: its control characters are shown, so that it cannot steer the terminal.
"""

import codecs
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final, NoReturn, ParamSpec

import click

from hostcore.cli.redacting_stream import scrub_streams
from hostcore.cli.wording import in_columns
from hostcore.errors import all_errors, described
from hostcore.secrets.scrub import known, scrub
from hostcore_builtin_plugins.control_characters import OutputFilter, visible
from hostcore_hookspecs.errors import HostcoreError

P = ParamSpec("P")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show the tracebacks of plugins that fail to load.")

#: Errors of a failure, as opposed to a wrong request.
_FAILURES = frozenset(
    {
        *("worker.died", "run.taken_over", "run.gone", "evaluation.failed"),
        *("service.unreachable", "service.full", "service.database", "service.defect", "request.too_many"),
        "plugin.transient",  # an engine that did not answer
    }
)

#: The error of a policy.
_REFUSAL = "policy.denied"


#: Begins a colour of the host's own until it is printed; random, so that no text of others can hold it.
_OWN: Final = f"\x1b{os.urandom(8).hex()}["
#: Characters that JSON may hold as they are, and a terminal obeys or reorders text for.
_IN_JSON: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def style(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    """Return a text in colour, for :func:`echo`; other escape sequences are shown, and not obeyed."""
    return click.style(visible(text), fg=fg, bold=bold).replace("\x1b[", _OWN)


def shown(text: str) -> str:
    """Return the text that :func:`echo` prints: the host's own colours, and every other control character escaped."""
    return "\x1b[".join(map(visible, text.split(_OWN)))


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print text for people, which may hold anything of a job, a plugin, a file or a server."""
    _write(shown(text) + "\n" * nl, err=err)


def redraw(line: str) -> None:
    """Print a line on standard error, which is a terminal, in place of the one that is there."""
    _write(f"\r\x1b[K{visible(line, one_line=True)}", err=True)


def shown_json(text: str | bytes) -> bytes:
    """Escape the characters in JSON that a terminal obeys."""
    text = text if isinstance(text, str) else text.decode(errors="backslashreplace")
    text = _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode(errors="backslashreplace")  # UTF-8, whatever the terminal's encoding


def echo_json(text: str | bytes) -> None:
    """Print JSON; see :func:`shown_json`."""
    click.echo(shown_json(text), nl=False)


class OutputEcho:
    """Printer of a program's output, piece by piece: see :class:`OutputFilter`. A last line without an end gets one.

    :param err: On standard error.
    """

    def __init__(self, *, err: bool = False) -> None:
        self._err = err
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._filter = OutputFilter(terminal=_stream(err).isatty())
        self._last = "\n"

    def show(self, piece: str | bytes) -> None:
        """Print a piece."""
        self._print(self._filter.feed(piece if isinstance(piece, str) else self._decoder.decode(piece)))

    def end(self) -> None:
        """Print the rest."""
        self._print(self._filter.feed(self._decoder.decode(b"", final=True)) + self._filter.finish())
        if not self._last.endswith("\n"):
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            _write(text, err=self._err)
            self._last = text


def _stream(err: bool) -> Any:
    return sys.stderr if err else sys.stdout


def _write(text: str, *, err: bool = False) -> None:
    encoding = getattr(_stream(err), "encoding", None) or "utf-8"
    # click drops colours where there is no terminal.
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, err=err)


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    from hostcore.events.strict_json import dump

    echo_json(dump(document, indent=True))


def tell_aside(line: str) -> None:
    """Print a line for people on standard error."""
    echo(line, err=True)


def warn(text: str) -> None:
    """Print a warning, on standard error."""
    echo(f"{style('warning:', fg='yellow', bold=True)} {text}", err=True)


@contextmanager
def plugins_print_aside(as_json: bool) -> Iterator[None]:
    """Redirect the output of plugins to standard error while it is entered, if standard output is for one document."""
    if not as_json:
        yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if known():
            scrub_streams()  # what was not there when they became known


def print_error(error: HostcoreError, *, verbose: bool = False) -> None:
    """Print one error for people, on standard error."""
    echo(f"{style('error:', fg='red', bold=True)} {scrub(described(error))}", err=True)
    traceback = getattr(error, "traceback", "")
    if verbose and traceback:
        echo(scrub(traceback), err=True)


def fail(error: HostcoreError, *, as_json: bool, verbose: bool = False) -> NoReturn:
    """Print an error, and exit."""
    from hostcore.runs.result import FAILED, INVALID, REFUSED  # it needs cattrs, which a wrong option does not wait for

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
    """Print the errors that a command raises, as JSON with ``--json``, and exit as documented.

    The value of ``--verbose`` is for the tracebacks of these errors; a command that has the parameter gets it as well.
    """
    wants_verbose = "verbose" in inspect.signature(command).parameters

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        verbose = bool(kwargs["verbose"] if wants_verbose else kwargs.pop("verbose", False))
        try:
            command(*args, **kwargs)
        except HostcoreError as error:
            for one in all_errors(error):
                if one.pointer and not one.file and kwargs.get("job"):
                    one.file = str(kwargs["job"])  # a pointer points into the job
            fail(error, as_json=bool(kwargs.get("as_json")), verbose=verbose)

    return guarded


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return aligned columns as lines for :func:`echo`; the head comes first."""
    first, *lines = in_columns(head, rows)
    return [style(first, bold=True), *lines]


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns on standard output."""
    echo("\n".join(table(head, rows)))
