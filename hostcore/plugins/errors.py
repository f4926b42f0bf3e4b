"""Errors of plugins: one line each, and carried from process to process with the plugin's traceback."""

import traceback as tracebacks
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hostcore.errors import all_errors
from hostcore.events.bounds import bounded_record
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.job.document import Origins

_LONGEST_MESSAGE = 500
#: What may be behind this, in characters, is not looked at: to split gigabytes into words takes as much memory again.
_LONGEST_LOOKED_AT = 1 << 16


class PluginError(HostcoreError):
    """A plugin that cannot be imported, constructed or registered.

    :param traceback: The plugin's own traceback, from its first frame on; None where no exception was raised.
    """

    code = "plugin"

    def __init__(self, message: str, *, traceback: str | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.traceback = traceback


def as_content(error: HostcoreError) -> list[dict[str, Any]]:
    """Return all errors behind an error as JSON for another process, with the traceback of a plugin's exception."""
    return [
        bounded_record({**one.as_dict(), "traceback": getattr(one, "traceback", None)}) for one in all_errors(error)
    ]


def of_content(content: Iterable[Mapping[str, Any]], origins: "Origins | None" = None) -> tuple[PluginError, ...]:
    """The reverse of :func:`as_content`.

    :param origins: Of the values in the job: its errors name the options that are to blame, which a worker cannot know.
    """
    from hostcore.job.document import blame  # a list of plugins needs no jobs

    errors = tuple(PluginError(**one) for one in content)
    blame(errors, origins or {})
    return errors


def named(ref: PluginRef) -> str:
    """A plugin in a sentence: ``the trainer mine (my-package 1.0, my_package:Trainer)``."""
    label = KINDS[ref.kind].label
    if ref.dist is None:
        return f"the {label} {ref.name}"
    return f"the {label} {ref.name} ({ref.dist} {ref.version}, {ref.value})"


def one_line(error: BaseException) -> str:
    """Type and message of an exception in one line, whatever its ``__str__`` does: ``ValueError: too small``."""
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}"
    else:
        # The first entry only: notes that were added to the exception follow it.
        text = tracebacks.format_exception_only(error)[0]
    if len(text) > _LONGEST_LOOKED_AT:
        text = scrub(text)[:_LONGEST_LOOKED_AT]
    text = scrub(" ".join(text.split()))  # before it is cut: a part of a secret would not be recognized
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"
