"""An exception of ``transform_batch`` in another process, on its way to the end of the run."""

from collections.abc import Sequence
from typing import Any, Literal

import attrs

from hostcore.events.bounds import bounded
from hostcore.plugins.attribution import attribute, plugin_place, plugin_traceback, whole_traceback
from hostcore.plugins.load import Component
from hostcore.plugins.resolve import Selected
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import HostcoreError, InvalidData, InvalidSettings, RunError

_WITHOUT_SETUP = (
    "setup and configure are not called in the processes of dataset.workers: make what transform_batch needs when it "
    "is first used, for example with functools.cached_property"
)


class UnsendableResult(HostcoreError):
    """``transform_batch`` returned something that cannot leave its process."""

    code = "transform.result"


class ChildDied(HostcoreError):
    """A process of ``dataset.workers`` has ended by itself."""

    code = "transform.died"


class TransformFailed(HostcoreError):
    """An exception of ``transform_batch`` that was raised in another process.

    :param type: The name of its class.
    :param traceback: The plugin's own, as text; empty for an error that explains itself.
    """

    code = "transform.failed"

    def __init__(self, message: str, *, type: str, traceback: str, **where: Any) -> None:
        super().__init__(message, **where)
        self.type = type
        self.traceback = traceback

    def as_run_error(self, *, rank: int) -> RunError:
        """Convert to the error of a failed run."""
        return RunError(
            type=self.type,
            message=self.message,
            traceback=self.traceback,
            plugin=self.plugin,
            rank=rank,
            hint=self.hint,
        )


@attrs.frozen(kw_only=True)
class TransformError:
    """An exception in words, made where it was raised: exceptions themselves may not travel."""

    #: What it is to be raised as.
    kind: Literal["data", "settings", "other"]
    type: str
    message: str
    traceback: str = ""
    code: str | None = None
    plugin: str | None = None
    pointer: str | None = None
    file: str | None = None
    hint: str | None = None

    @classmethod
    def of(
        cls, error: BaseException, components: Sequence[Component], selected: Sequence[Selected]
    ) -> "TransformError":
        """Describe an exception that is being handled.

        :param components: The components of this process, as far as they have been made.
        :param selected: Where they stand in the job.
        """
        culprit = attribute(error, components)
        plugin = culprit.ref.provenance if culprit else None
        if isinstance(error, HostcoreError):
            return cls._of_ours(error, culprit, selected)
        return cls(
            kind="other",
            type=type(error).__name__,
            message=_message(error),
            traceback=plugin_traceback(error, culprit) if culprit else whole_traceback(error),
            plugin=plugin,
            hint=_WITHOUT_SETUP if culprit and _lacks_attribute(error, culprit) else None,
        )

    @classmethod
    def _of_ours(
        cls, error: HostcoreError, culprit: Component | None, selected: Sequence[Selected]
    ) -> "TransformError":
        kind: Literal["data", "settings", "other"] = "other"
        pointer = error.pointer
        if isinstance(error, InvalidData):
            kind, pointer = "data", pointer or "/dataset"
        elif isinstance(error, InvalidSettings):
            kind = "settings"
            at = next((one.pointer for one in selected if culprit and one.use == culprit.use), "")
            pointer = at + (pointer or "")
        return cls(
            kind=kind,
            type=type(error).__name__,
            message=error.message,
            traceback=getattr(error, "traceback", None) or "",
            code=error.code,
            plugin=error.plugin or (culprit.ref.provenance if culprit else None),
            pointer=pointer,
            file=error.file or (plugin_place(error, culprit) if culprit else None),
            hint=error.hint,
        )

    def as_error(self) -> HostcoreError:
        """The exception to raise in the loop's process: :class:`InvalidData` and :class:`InvalidSettings` stay such."""
        where = {"code": self.code, "file": self.file, "hint": self.hint, "plugin": self.plugin}
        if self.kind == "data":
            return InvalidData(self.message, pointer=self.pointer, **where)
        if self.kind == "settings":
            return InvalidSettings(self.pointer or "", self.message, **where)
        return TransformFailed(self.message, type=self.type, traceback=self.traceback, pointer=self.pointer, **where)


def _lacks_attribute(error: BaseException, component: Component) -> bool:
    return isinstance(error, AttributeError) and error.obj is component.instance


def _message(error: BaseException) -> str:
    try:
        return bounded(scrub(str(error)))
    except Exception:  # noqa: BLE001 - a plugin's own __str__
        return "<exception str() failed>"  # as Python's own tracebacks have it
