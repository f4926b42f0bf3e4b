"""The reporter ``mlflow``: logs a run to an MLflow tracking server."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import attrs
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.http_exchange import check_url
from hostcore_hookspecs import Event, InvalidSettings, ReporterContext, Secret, Uri
from hostcore_hookspecs.events import ENDS, CheckpointSaved, RunSubmitted
from hostcore_trackers.history import reason_of
from hostcore_trackers.scalars import scalars_of
from hostcore_trackers.submission import submitted_ms

if TYPE_CHECKING:
    from hostcore_trackers.mlflow_api import MlflowApi
    from hostcore_trackers.mlflow_run import MlflowRun

_STATUS: Final[Mapping[str, str]] = MappingProxyType(
    {"run_succeeded": "FINISHED", "run_failed": "FAILED", "run_cancelled": "KILLED", "run_preempted": "KILLED"}
)


class MlflowReporter:
    """Keeps one MLflow run for a run, over all its attempts.

    An event is sent before the next one is taken: a taken event counts as reported, and one that waits in memory would
    be lost with the process.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Server, and names of the run there."""

        tracking_uri: Uri = attrs.field(metadata={"help": "The server: `http://host:5000`."})
        experiment: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The experiment.", "default": "the trainer's name"}
        )
        create_experiment: bool = attrs.field(
            default=True, metadata={"help": "Make the experiment, if the server does not have it."}
        )
        run_name: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "What MLflow calls the run.", "default": "the run's id"}
        )
        token: Secret | None = attrs.field(
            default=None,
            metadata={"help": "Sent as `Authorization: Bearer …`.", "default": "`MLFLOW_TRACKING_TOKEN`"},
        )
        username: str | None = attrs.field(
            default=None, metadata={"help": "The user, instead of a token.", "default": "`MLFLOW_TRACKING_USERNAME`"}
        )
        password: Secret | None = attrs.field(
            default=None, metadata={"help": "The user's password.", "default": "`MLFLOW_TRACKING_PASSWORD`"}
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=10.0, metadata={"help": "For each: connecting, and waiting for an answer."}
        )

    def __init__(self, *, settings: Settings) -> None:
        _check(settings)
        require("mlflow", extra="mlflow")
        self._settings = settings
        self._ctx: ReporterContext | None = None
        self._api: MlflowApi | None = None
        self._run: MlflowRun | None = None
        self._refused: set[str] = set()

    def open(self, ctx: ReporterContext) -> None:
        """Import MLflow; nothing is sent before the first event."""
        from hostcore_trackers.mlflow_api import MlflowApi

        settings = self._settings
        self._ctx, self._run = ctx, None
        self._refused.clear()
        self._api = MlflowApi(
            settings.tracking_uri,
            token=settings.token.value if settings.token else None,
            username=settings.username,
            password=settings.password.value if settings.password else None,
            timeout_seconds=settings.timeout_seconds,
        )

    def report_event(self, event: Event) -> None:
        """Send what MLflow has a place for: metrics, checkpoints, and how attempts begin and end.

        :raises TransientError: The server cannot be reached, or cannot take it now.
        :raises FatalError: The server refuses this user or the experiment, or the run was deleted there.
        """
        run = self._mlflow_run(event)
        if scalars := scalars_of(event):
            run.log_metrics(scalars, step=event.step or 0, time_ms=event.time_ms)
        elif isinstance(event.payload, RunSubmitted):
            run.set_tags({"hostcore.attempt": str(event.attempt)})
            run.set_status("RUNNING", ended_ms=None)
        elif isinstance(event.payload, CheckpointSaved):
            kept_for = {f"hostcore.best.{name}": str(value) for name, value in event.payload.best.items()}
            run.set_tags({"hostcore.checkpoint": event.payload.path, **kept_for})
        elif event.name in ENDS:
            run.set_tags({"hostcore.status": event.name.removeprefix("run_"), "hostcore.reason": reason_of(event)})
            run.set_status(_STATUS[event.name], ended_ms=event.time_ms)

    def close(self) -> None:
        """Forget the server; there is nothing left to send."""
        self._api = self._run = None

    def _mlflow_run(self, event: Event) -> "MlflowRun":
        """The server's run; looked for at the first event, and again after each failure of that."""
        from hostcore_trackers.mlflow_run import MlflowRun, experiment_id

        if self._run is None:
            settings, ctx, api = self._settings, self._ctx, self._api
            assert ctx is not None  # open comes first
            assert api is not None
            experiment = settings.experiment or ctx.job.trainer or "hostcore"
            run = MlflowRun.find_or_create(
                api,
                experiment_id=experiment_id(api, experiment, create=settings.create_experiment),
                name=settings.run_name or ctx.run_id,
                run_id=ctx.run_id,
                submitted_ms=submitted_ms(ctx.run_dir, event),
                job=ctx.job,
            )
            run.on_refused = self._warn_once
            run.log_parameters(ctx.job)
            self._run = run
        return self._run

    def _warn_once(self, name: str, reason: str) -> None:
        assert self._ctx is not None
        if name not in self._refused:
            self._refused.add(name)
            self._ctx.warn(f"{name!r} is not in MLflow: {reason}")


def _check(settings: MlflowReporter.Settings) -> None:
    if urlsplit(settings.tracking_uri).scheme not in ("http", "https"):
        raise InvalidSettings(
            "/tracking_uri",
            "expected the http or https URL of an MLflow server",
            hint="for a database or a folder, start a server over it: mlflow server --backend-store-uri …",
        )
    check_url(settings.tracking_uri, "/tracking_uri")
    if (settings.username is None) != (settings.password is None):
        raise InvalidSettings("/username", "username and password go together")
    if settings.token is not None and settings.username is not None:
        raise InvalidSettings("/token", "either a token, or a username and password")
