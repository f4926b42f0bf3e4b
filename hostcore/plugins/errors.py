"""What goes wrong in a plugin, told in one line, with the plugin's own traceback at hand."""

import traceback as tracebacks
from typing import Any

from hostcore.scrubbing import scrub
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

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
