"""Errors of plugins: one line each, and carried from process to process with the plugin's traceback."""

import traceback as tracebacks
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hostcore.errors import all_errors
from hostcore.events.bounds import bounded_record
from hostcore.interruption import is_by_signal
from hostcore.plugins.attribution import in_package, place, traceback_from
from hostcore.plugins.installed import package_of
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

    :param about: The plugin; or the import path of an object of the user's.
    :param traceback: The plugin's own traceback, from its first frame on; None where no exception was raised.
    """

    code = "plugin"

    def __init__(
        self, message: str, *, about: PluginRef | str = "", traceback: str | None = None, **where: Any
    ) -> None:
        if isinstance(about, PluginRef):
            where["plugin"] = about.provenance
        super().__init__(message, **where)
        self.traceback = traceback


def as_content(error: HostcoreError) -> list[dict[str, Any]]:
    """Return all errors behind an error as JSON for another process, with the traceback of a plugin's exception."""
    return [
        bounded_record({**one.as_dict(), "traceback": getattr(one, "traceback", None)}) for one in all_errors(error)
    ]


def of_content(content: Iterable[Mapping[str, Any]], origins: "Origins | None" = None) -> tuple[PluginError, ...]:
    """Return the errors of :func:`as_content`.

    :param origins: Of the values in the job: its errors name the options that are to blame, which a worker cannot know.
    """
    from hostcore.job.document import blame  # a list of plugins needs no jobs

    errors = tuple(PluginError(**one) for one in content)
    blame(errors, origins or {})
    return errors


def named(ref: PluginRef | str) -> str:
    """Return a plugin as a part of a sentence: ``the trainer mine (my-package 1.0, my_package:Trainer)``."""
    if isinstance(ref, str):
        return ref
    label = KINDS[ref.kind].label
    if ref.dist is None:
        return f"the {label} {ref.name}"
    return f"the {label} {ref.name} ({ref.dist} {ref.version}, {ref.value})"


def one_line(error: BaseException) -> str:
    """Return type and message of an exception in one line, whatever its ``__str__`` does: ``ValueError: too small``."""
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}"
    else:
        # The first entry only: notes that were added to the exception follow it.
        text = tracebacks.format_exception_only(error)[0]
    if len(text) > _LONGEST_LOOKED_AT:
        text = scrub(text)[:_LONGEST_LOOKED_AT]
    text = scrub(" ".join(text.split()))  # before it is cut: a part of a secret would not be recognized
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"


@contextmanager
def guarded(done: str, ref: PluginRef, *, code: str, pointer: str | None = None) -> Iterator[None]:
    """Turn exceptions of a plugin into :class:`PluginError`; its own errors of the contract pass, and name it.

    :param done: As :func:`from_exception` takes it.
    """
    try:
        yield
    except HostcoreError as error:
        for one in all_errors(error):
            one.plugin = one.plugin or ref.provenance
        raise
    except BaseException as error:
        if is_by_signal(error):
            raise
        raise from_exception(done, error, code=code, ref=ref, pointer=pointer) from error


def from_exception(
    done: str, error: BaseException, *, code: str, ref: PluginRef | str, hint: str | None = None, **where: Any
) -> PluginError:
    """Convert an exception of a plugin: one line, with its own traceback.

    :param done: The action that failed: ``imported``, ``constructed``.
    :param ref: The plugin; or the import path of an object of the user's.
    """
    own = in_package(package_of(ref if isinstance(ref, str) else ref.value))
    found = place(error, own)
    return PluginError(
        f"{named(ref)} could not be {done}: {one_line(error)}{f' ({found[0]}:{found[1]})' if found else ''}",
        code=code,
        file=found[0] if found else None,
        hint=hint,
        about=ref,
        traceback=traceback_from(error, own),
        **where,
    )
