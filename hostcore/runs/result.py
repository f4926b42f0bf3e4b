"""The end of a run: ``result.json``, which is also the value of ``hostcore.run``."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.bounds import bounded_record
from hostcore.runs.documents import from_document, read_document, write_document
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import RunError

SUCCEEDED: Final = 0
FAILED: Final = 1
#: An invalid job, or a wrong use of the command line.
INVALID: Final = 2
REFUSED: Final = 3
#: EX_TEMPFAIL: try again later.
PREEMPTED: Final = 75
#: 128 + SIGINT, as shells have it.
CANCELLED: Final = 130

EXIT_CODES: Final[Mapping[str, int]] = {
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "cancelled": CANCELLED,
    "preempted": PREEMPTED,
}


#: The type of the error of a run that came to its end, and something required was not delivered.
NOT_DELIVERED: Final = "NotDelivered"
#: The type of the error of a run whose resume gave other metrics, and whose job has it fail for that.
INEXACT_RESUME: Final = "InexactResume"
#: The errors that another attempt does not repair.
UNREPAIRABLE: Final = frozenset({NOT_DELIVERED, INEXACT_RESUME})


@attrs.frozen(kw_only=True)
class Left:
    """Undelivered events or artifacts of a reporter or an uploader at the end of a run. None of them is lost."""

    #: One line.
    message: str
    #: Words of the command that delivers it; the run's name comes behind the second. Empty if there is none.
    command: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class RunWarning:
    """Something that the user should know of a run, whatever its status."""

    #: ``metrics.nonfinite``: a metric was not finite. ``resume.differs``: steps that were trained again gave others.
    #: ``resume.plugins``: an attempt had other plugins. ``plugin.other_code``: a plugin's code is of another origin.
    #: ``weights.unread``, ``hyperparams.unread``, ``optimizer.not_saved``, ``parameters.unchanged``: mistakes in a
    #: trainer or a job that fail nothing.
    code: str
    #: One line.
    message: str
    #: What to do about it.
    hint: str | None = None
    #: The metric that it is about.
    metric: str | None = None
    #: Finished steps when that was recorded first and last.
    first_step: int | None = None
    last_step: int | None = None
    #: Whether the metric was as it should be when it was recorded last.
    is_over: bool = False


@attrs.frozen(kw_only=True)
class RunResult:
    """The end of an attempt."""

    run_id: str
    #: ``succeeded``, ``failed``, ``cancelled`` or ``preempted``.
    status: str
    exit_code: int
    #: Why it ended before its last step, if it did.
    reason: str | None = None
    requested_by: str | None = None
    attempt: int
    #: Finished steps, over all attempts.
    step: int
    epoch: int
    #: The step whose state the trainer has, where it went back to an earlier one at the end.
    restored_step: int | None = attrs.field(default=None, repr=False)
    #: The value recorded last of each metric, of training, validation and test; of ``restored_step`` but for the test.
    metrics: Mapping[str, float | None] = attrs.field(factory=dict)
    #: The best value: metric, value, step. It is that of the newest checkpoint that a callback had kept, else the
    #: lowest loss of the validations. None: there was neither.
    best: Mapping[str, Any] | None = None
    #: The folder of the newest checkpoint, below the run directory; None if there is none.
    final_checkpoint: str | None = None
    error: RunError | None = None
    #: Milliseconds since 1970.
    started_ms: int
    ended_ms: int
    #: Warnings that the user should know, whatever the status.
    warnings: Sequence[RunWarning] = ()
    #: Not part of ``result.json``: it can be delivered later.
    left: Sequence[Left] = attrs.field(default=(), eq=False)

    def as_dict(self) -> dict[str, Any]:
        """The result as plain JSON."""
        plain = attrs.asdict(self)
        del plain["left"]
        return {**plain, "warnings": list(plain["warnings"])}

    def _repr_html_(self) -> str:
        """Return a table for a notebook, and under it the traceback of a plugin's exception."""
        error = self.error
        rows = {
            "status": self.status + (f": {self.reason}" if self.reason else ""),
            "weights": self.restored_step and f"of step {self.restored_step}",
            "step": f"{self.step}, of attempt {self.attempt}, in {(self.ended_ms - self.started_ms) / 1000:.1f} s",
            **{name: _number(value) for name, value in self.metrics.items()},
            "best": self.best and "{metric} {value:.4g} at step {step}".format_map(self.best),
            "checkpoint": self.final_checkpoint,
            "error": error and ": ".join(filter(None, (error.plugin, error.type, error.message))),
            "hint": error and error.hint,
            "warnings": "\n".join(one.message for one in self.warnings),
            "not delivered": "\n".join(one.message for one in self.left),
        }
        table = "".join(f"<tr><th>{_html(name)}</th><td>{_html(text)}</td></tr>" for name, text in rows.items() if text)
        traceback = f"<pre>{_html(error.traceback)}</pre>" if error and error.traceback else ""
        return f"<table><caption>{_html(self.run_id)}</caption>{table}</table>{traceback}"

    def write(self, path: Path) -> None:
        """Write ``result.json``."""
        write_document(path, self.as_dict())

    @classmethod
    def read(cls, path: Path) -> "RunResult | None":
        """Read the result of a run's newest ended attempt; None if none has ended.

        Its texts are bounded, also where the version that wrote it has not bounded them.

        :raises CorruptDocument: When the file is not a result.
        """
        try:
            return from_document(cls, bounded_record(read_document(path, cut_texts=True)), file=path)
        except FileNotFoundError:
            return None


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _html(text: str) -> str:
    """Text of jobs and plugins as HTML that cannot do anything."""
    return html.escape(visible(text)).replace("\n", "<br>")
