"""Errors of the host itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import HostcoreError

A = TypeVar("A")
B = TypeVar("B")


class Errors(HostcoreError):
    """Several errors found together: everything that is wrong with a job, at once.

    :param errors: At least one.
    """

    code = "several"

    def __init__(self, errors: Sequence[HostcoreError]) -> None:
        super().__init__("\n".join(error.message for error in errors))
        self.errors = tuple(errors)

    def __str__(self) -> str:
        """All of them as :func:`described`, so that a traceback has place and remedy."""
        return "\n".join(described(error) for error in self.errors)


#: Beginnings of ``file`` in an error of an option's or a variable's value: ``--set seed``, ``$TRAINER_PLUGIN``.
_OPTIONS = ("--", "$")


def is_option(origin: str) -> bool:
    """Return whether the ``file`` of an error is an option or a variable."""
    return origin.startswith(_OPTIONS)


def described(error: HostcoreError) -> str:
    """The message of a single error; under it, a line each, the plugin, the place in the job, the file and the hint."""
    origin = "from" if error.file and is_option(error.file) else "file"
    # A key of a job and the name of a file may hold line breaks: what follows one must not look like a hint.
    details = {
        "plugin": error.plugin if error.plugin and error.plugin not in error.message else None,
        "at": visible(error.pointer or "", one_line=True),
        origin: visible(error.file or "", one_line=True),
        "hint": error.hint,
    }
    return "\n".join([error.message, *(f"{label:>8}: {text}" for label, text in details.items() if text)])


def all_errors(error: HostcoreError) -> tuple[HostcoreError, ...]:
    """The errors behind an error: itself, unless it is several."""
    return error.errors if isinstance(error, Errors) else (error,)


def for_each(items: Iterable[A], act: Callable[[A], B]) -> list[B]:
    """Call ``act`` for each item; all are tried, whatever is wrong with one of them.

    :raises Errors: Everything that was wrong.
    """
    done: list[B] = []
    errors: list[HostcoreError] = []
    for item in items:
        try:
            done.append(act(item))
        except HostcoreError as error:
            errors += all_errors(error)
    if errors:
        raise Errors(errors)
    return done
