"""Output of ``hostcore check``: a line for each check as it is made, failures in full at the end."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hostcore.cli.output import OutputEcho, echo, shown, style
from hostcore.secrets.scrub import scrub
from hostcore_builtin_plugins.control_characters import visible
from hostcore_conformance.process.exchange import Begun, Ended, Event, Opened, Printed
from hostcore_conformance.result import CheckResult, Report
from hostcore_hookspecs.kinds import KINDS

#: The mark and its colour, by outcome; what needs an example has its own.
_MARKS: Final = {
    "passed": ("ok", "green"),
    "failed": ("FAIL", "red"),
    "warning": ("should", "yellow"),
    "blocked": ("blocked", "yellow"),
    "skipped": ("skip", "cyan"),
    "unasked": ("unasked", "yellow"),
    "expected_failure": ("known", "cyan"),
}
_VERDICT_COLOURS: Final = {
    "certified": "green",
    "conforms": "cyan",
    "passes what was asked": "cyan",
    "not fully checked": "yellow",
    "fails": "red",
}
_MARK_WIDTH: Final = 7
_LEAST_WIDTH: Final = 40
#: Without a terminal: in the log of a CI server.
_LOG_WIDTH: Final = 160
_LAST_LINES: Final = 15


class CheckLines:
    """Shows what happens to people.

    :param aside: On standard error: standard output is for a program.
    :param verbose: What plugins print is shown as well, and tracebacks.
    """

    def __init__(self, *, aside: bool, verbose: bool) -> None:
        self._aside = aside
        self._verbose = verbose
        self._stream = sys.stderr if aside else sys.stdout
        self._on_terminal = self._stream.isatty()
        self._width = shutil.get_terminal_size().columns if self._on_terminal else _LOG_WIDTH
        self._id_width = 0
        #: The line at the bottom of a terminal with the present activity.
        self._status: Any = None
        self._printed = ""
        self._output = OutputEcho(err=True)
        #: The last of what was printed, by check.
        self._tails: dict[str, str] = {}

    @contextmanager
    def live(self) -> Iterator[None]:
        """While it is entered, a terminal shows which check is being made."""
        self._tails = {}
        if not self._on_terminal or self._verbose:
            yield
            return
        from rich.console import Console

        console = Console(file=self._stream)
        with console.status("finding the plugin") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def show(self, event: Event) -> None:
        """Show what happened."""
        if isinstance(event, Opened):
            self._id_width = max(map(len, event.ids), default=0)
            wanted = f"{len(event.ids)} checks" if event.complete else "some checks"
            self._say(f"checking the {KINDS[event.ref.kind].label} {event.ref.provenance}: {wanted}")
        elif isinstance(event, Begun):
            self._printed = ""
            if self._status is not None:
                from rich.text import Text

                self._status.update(Text(event.id))
        elif isinstance(event, Printed):
            self._printed += event.text
            if self._verbose:
                self._output.show(scrub(event.text))
        elif isinstance(event, Ended):
            self._tails[event.result.id] = self._printed
            if event.wanted or event.result.status != "passed":
                self._say(self._line(event.result))

    def _line(self, result: CheckResult) -> str:
        word, colour = _MARKS["unasked" if result.no_example else result.outcome]
        start = f"{result.id:<{self._id_width}}  {result.seconds:6.2f} s"
        about = "" if result.status == "passed" else _one_line(result)
        left = max(_LEAST_WIDTH, self._width - _MARK_WIDTH - len(start) - 4)
        about = textwrap.shorten(about, left, placeholder=" …") if about else ""
        return f"{style(f'{word:<{_MARK_WIDTH}}', fg=colour)} {start}  {about}".rstrip()

    def sum_up(self, report: Report, *, certified: bool) -> None:
        """Show the failures, and the verdict.

        :param certified: Whether to show what a certificate lacks.
        """
        for same in _alike(report.results):
            self._say("\n" + "\n".join(self._failure(same)))
        wanting = [result for result in report.results if result.wants_example and not result.is_followup]
        for reason, word in {one.message: "not asked" if one.no_example else "skipped" for one in wanting}.items():
            self._say("\n" + "\n".join(self._indented(word, reason)))  # in full: it has what to give
        self._say("\n" + style(report.line, fg=_VERDICT_COLOURS[report.verdict], bold=True))
        if not report.is_fully_checked:
            unasked = dict.fromkeys(result.family for result in report.results if result.no_example)
            self._say("\n".join(self._indented("not asked", ", ".join(unasked))))
            self._say("\n".join(self._indented("hint", "give an example as said above; --partial does without")))
        if certified and not report.certified:
            for line in _missing(report):
                self._say(f"  not certified: {line}")

    def _failure(self, same: Sequence[CheckResult]) -> Iterator[str]:
        result, *others = same
        word, colour = _MARKS[result.outcome]
        name = style(result.id, bold=True)
        yield f"{style(word, fg=colour, bold=True)}  {name}  {result.level.upper()}"
        for other in others:
            yield f"{' ' * len(word)}  {style(other.id, bold=True)}"
        parts = {"expected": result.expected, "got": result.got, "fix": result.fix}
        if not result.got:
            parts = {"got": result.message}
        for label, text in parts.items():
            yield from self._indented(label, text)
        tail = scrub(self._tails.get(result.id, "")).strip()
        if tail and not self._verbose:
            yield from self._indented("printed", "\n".join(tail.splitlines()[-_LAST_LINES:]), keep=True)
        if result.traceback and self._verbose:
            yield textwrap.indent(visible(result.traceback.rstrip()), "      ")
        more = "" if self._verbose or not result.traceback else "; -v shows the traceback"
        yield from self._indented("more", f"hostcore check --explain {result.family}{more}", keep=True)

    def _indented(self, label: str, text: str, *, keep: bool = False) -> Iterator[str]:
        """A text behind its label, the lines under each other.

        :param keep: Whether it stays as it is, to be copied; else it is filled to the width.
        """
        head, indent = f"  {label:<10}", " " * 12
        width = max(_LEAST_WIDTH, min(self._width, 120) - len(indent))
        for line in visible(text).splitlines():
            for piece in [line] if keep else textwrap.wrap(line.strip(), width, break_on_hyphens=False):
                yield f"{head}{piece}".rstrip()
                head = indent

    def _say(self, line: str) -> None:
        if self._status is None:
            echo(line, err=self._aside)
            return
        from rich.text import Text

        # Above the line at the bottom; click would write into it.
        self._status.console.print(Text.from_ansi(shown(scrub(line))), soft_wrap=True)


def _alike(results: Sequence[CheckResult]) -> list[list[CheckResult]]:
    """The failed results; variants of a check that failed in the same way together."""
    groups: dict[tuple[str, ...], list[CheckResult]] = {}
    for result in results:
        if result.status == "failed":
            groups.setdefault((result.family, result.message, result.got), []).append(result)
    return list(groups.values())


def _one_line(result: CheckResult) -> str:
    return " ".join((result.got or result.message).split())


def _missing(report: Report) -> Sequence[str]:
    """Return the reasons why a plugin is not certified, a line for each thing to do."""
    lines = []
    for words, found in {
        "failed": [one for one in report.results if one.outcome == "failed"],
        "should pass, and does not": [one for one in report.results if one.outcome == "warning"],
        "not asked, because another has not passed": [one for one in report.results if one.status == "blocked"],
        "known to fail": [one for one in report.results if one.status == "expected_failure"],
    }.items():
        if found:
            lines.append(f"{words}: {', '.join(one.id for one in found)}")
    for reason in dict.fromkeys(one.message for one in report.results if one.wants_example):
        ids = [one.id for one in report.results if one.wants_example and one.message == reason]
        lines.append(f"{reason}: {', '.join(ids)}")
    if not report.complete:
        lines.append("only some of the checks were made (--only)")
    return lines
