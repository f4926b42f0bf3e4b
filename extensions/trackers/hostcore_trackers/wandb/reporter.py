"""The reporter ``wandb``: keeps a run of Weights & Biases for a run, in files of wandb's, at the server, or both."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.http_exchange import check_url
from hostcore_hookspecs import Event, Secret, Uri
from hostcore_hookspecs.events import ENDS, RunPreempted
from hostcore_trackers.history import EXIT_CODES, Row
from hostcore_trackers.job_parameters import config_of
from hostcore_trackers.library_reporter import LibraryReporter
from hostcore_trackers.submission import submitted_ms

#: What wandb does not take in the name of a project.
_NOT_IN_PROJECTS: Final = re.compile(r"[/\\#?%:]")
_PROJECT_CHARACTERS: Final = 128
#: An id may have 128, of which the time of submission takes 12.
_ID_CHARACTERS: Final = 116
#: What wandb reads from the environment and keeps here: who the user is, and the way to the server. The other variables
#: steer scripts that are run under wandb, or are set by one.
_KEPT: Final = frozenset(
    {
        "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_CREDENTIALS_FILE",
        "WANDB_ENTITY", "WANDB_HTTP_PROXY", "WANDB_HTTPS_PROXY", "WANDB_IDENTITY_TOKEN_FILE",
        "WANDB_INSECURE_DISABLE_SSL",
    }
)  # fmt: skip


class WandbReporter(LibraryReporter):
    """Keeps one run of wandb for a run, over all its attempts.

    An event counts as reported when wandb's file in the run directory has its row; the server follows that file. Each
    row has the number of its event as wandb's own step, so that wandb itself ignores an event that comes again.
    """

    LIBRARY = "wandb"
    SESSION = "hostcore_trackers.wandb.session"

    @attrs.frozen(kw_only=True)
    class Settings:
        """Project, and use of a server."""

        project: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The project.", "default": "the trainer's name"}
        )
        entity: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The user or team.", "default": "as wandb is configured"}
        )
        mode: Literal["online", "offline"] = attrs.field(
            default="online", metadata={"help": "`offline` writes the files alone, for `wandb sync`."}
        )
        name: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "What wandb calls the run.", "default": "the run's id"}
        )
        group: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The group of runs that it is shown in."}
        )
        tags: Sequence[str] = attrs.field(factory=tuple, metadata={"help": "Tags of the run."})
        dir: Path | None = attrs.field(
            default=None,
            metadata={
                "help": "A folder that many runs may share; wandb makes the folder `wandb` in it.",
                "default": "the run directory",
            },
        )
        base_url: Uri | None = attrs.field(
            default=None, metadata={"help": "The server.", "default": "`WANDB_BASE_URL`, or wandb's own"}
        )
        api_key: Secret | None = attrs.field(
            default=None,
            metadata={"help": "The user's key.", "default": "`WANDB_API_KEY`, or what `wandb login` has noted"},
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=20.0, metadata={"help": "For each: starting wandb, each answer, and the last upload."}
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        self._settings = settings or self.Settings()
        if self._settings.base_url is not None:
            check_url(self._settings.base_url, "/base_url")
        require("wandb", extra="wandb")
        super().__init__(timeout_seconds=self._settings.timeout_seconds)
        #: How the attempt that a run of wandb is open for has ended.
        self._end: Mapping[str, Any] = {}

    def report_event(self, event: Event) -> None:
        """Write what wandb has a place for: metrics, checkpoints, and how attempts begin and end.

        :raises TransientError: wandb's process has died, does not answer, or does not reach the server.
        :raises FatalError: The server refuses this user or the project.
        """
        is_new = event.seq > self._history(event).last_seq
        if self._attempt is None:
            # A server may lack what the files have.
            if is_new or self._settings.mode == "online":
                self._begin(event)
        elif is_new and self._attempt != event.attempt:
            self._finish()
            self._begin(event)
        super().report_event(event)
        if event.name in ENDS:
            self._end = {"exit_code": EXIT_CODES[event.name], "is_preempted": isinstance(event.payload, RunPreempted)}

    def close(self) -> None:
        """Finish wandb's run, which waits for the upload of what is left, and end the process.

        :raises TransientError: The server has not taken everything. The next attempt, or a replay, sends it the rest.
        """
        try:
            if self._process is not None and self._process.is_usable:
                self._finish()
        finally:
            super().close()

    def _where(self, event: Event) -> dict[str, str]:
        project = self._settings.project or self._ctx.job.trainer or "hostcore"
        return {
            "project": _NOT_IN_PROJECTS.sub("-", project)[:_PROJECT_CHARACTERS],
            "run_id": f"{self._ctx.run_id[:_ID_CHARACTERS]}-{submitted_ms(self._ctx.run_dir, event):x}",
            "folder": str(Path(self._settings.dir or self._ctx.run_dir).absolute()),
        }

    def _tell(self, event: Event, row: Row) -> None:
        step = {} if event.step is None else {"host/step": event.step}
        self._call("log", row={**row, **step}, seq=event.seq, time_ms=event.time_ms)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Those of the supervisor, without those by which wandb is steered."""
        kept = {name: value for name, value in variables.items() if not name.startswith("WANDB_") or name in _KEPT}
        return {**kept, "WANDB_ERROR_REPORTING": "false"}

    def _begin(self, event: Event) -> None:
        """Begin wandb's run for an attempt, or resume it; send the server the rows that it lacks."""
        settings, history = self._settings, self._history(event)
        at_server = self._call(
            "begin",
            **self._where(event),
            seq=event.seq,
            mode=settings.mode,
            entity=settings.entity,
            name=settings.name or self._ctx.run_id,
            group=settings.group,
            tags=tuple(settings.tags),
            config=config_of(self._ctx.job),
            base_url=settings.base_url,
            api_key=settings.api_key.value if settings.api_key and settings.mode == "online" else None,
            # Before this process takes it for dead, wandb itself gives up.
            patience_seconds=0.8 * settings.timeout_seconds,
        )
        is_new = event.seq > history.last_seq
        history.last_seq = max(history.last_seq, at_server)
        self._attempt, self._end = event.attempt if is_new else self._ctx.attempt, {}

    def _finish(self) -> None:
        """Finish wandb's run, if one is open; one without an end was left by its supervisor."""
        if self._attempt is not None:
            self._attempt = None
            self._call("finish", **(self._end or {"exit_code": 1, "is_preempted": False}))
