"""Errors: one hierarchy for the host and for what plugins raise.

Every error has what was wrong, where, and what to do; ``code`` is stable, so that programs can distinguish errors.
"""

from typing import Any

import attrs


class HostcoreError(Exception):
    """The root of all errors that hostcore raises on purpose. Shown without a traceback.

    :param message: What was wrong, in one sentence.
    :param code: A stable, dotted name; each subclass has its own default.
    :param pointer: Where in the job: a JSON pointer (RFC 6901), such as ``/dataset/batch_size``.
    :param file: The file concerned, if any.
    :param hint: What to do about it.
    :param plugin: The plugin concerned, as ``name (distribution version)``.
    """

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        pointer: str | None = None,
        file: str | None = None,
        hint: str | None = None,
        plugin: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.pointer = pointer
        self.file = file
        self.hint = hint
        self.plugin = plugin

    def as_dict(self) -> dict[str, Any]:
        """The error as plain JSON: ``code``, ``message``, ``pointer``, ``file``, ``hint``, ``plugin``."""
        return {
            "code": self.code,
            "message": self.message,
            "pointer": self.pointer,
            "file": self.file,
            "hint": self.hint,
            "plugin": self.plugin,
        }


class InvalidSettings(HostcoreError):
    """Raised by a plugin whose settings are well-formed but make no sense together.

    :param pointer: Where in the plugin's own settings: ``/hidden_sizes/0``. The host puts the place of the settings
        in the job in front of it.
    """

    code = "settings.invalid"

    def __init__(self, pointer: str, message: str, **where: Any) -> None:
        super().__init__(message, pointer=pointer, **where)


class InvalidData(HostcoreError):
    """Raised by a data source, or while batches are prepared, when the data does not fit the job.

    Before the first step is finished it makes the job invalid (exit code 2); later it fails the run (exit code 1).
    """

    code = "data.invalid"


class TransientError(HostcoreError):
    """Raised by a reporter, uploader or launcher for something that may work when tried again.

    :param retry_after_seconds: How long the other side asked to be left alone; None if it did not ask.
    """

    code = "plugin.transient"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.retry_after_seconds = retry_after_seconds


class FatalError(HostcoreError):
    """Raised by a plugin for something that will not work however often it is tried."""

    code = "plugin.fatal"


@attrs.frozen(kw_only=True)
class RunError:
    """Cause of a run's failure."""

    #: The exception's class, or ``WorkerDied``.
    type: str
    message: str
    #: Of the plugin's own exception; empty for an error that explains itself.
    traceback: str = ""
    #: The plugin it came from, with distribution and version; None if from none.
    plugin: str | None = None
    rank: int | None = None
    #: What to do about it.
    hint: str | None = None
