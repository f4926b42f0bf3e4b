"""The uploader ``mlflow-artifacts``: copies the run into the artifact store of its MLflow run."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
import orjson
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.http_endpoint import check_url
from hostcore_builtin_plugins.uploaders.copying import Content, Store, copy, upload_errors
from hostcore_hookspecs import (
    Artifact,
    FatalError,
    InvalidSettings,
    Secret,
    TransientError,
    UploadContext,
    UploadReceipt,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hostcore_builtin_plugins.uploaders.http_exchange import HttpExchange
    from hostcore_trackers.mlflow_api import MlflowApi


class MlflowArtifactsUploader:
    """Keeps artifacts beside what the reporter ``mlflow`` logs: in the same MLflow run, which either of them makes."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which server, as the reporter ``mlflow`` has it."""

        tracking_uri: str = attrs.field(metadata={"help": "The server: `http://host:5000`."})
        experiment: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "The experiment.", "default": "the trainer's name"}
        )
        run_name: Annotated[str, MinLen(1)] | None = attrs.field(
            default=None, metadata={"help": "What MLflow calls the run, if this makes it.", "default": "the run's id"}
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
        verify: bool = attrs.field(
            default=True,
            metadata={"help": "Read back what was written, and compare its SHA-256; otherwise only its size."},
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=60.0, metadata={"help": "For each: connecting, and waiting for the next bytes."}
        )

    def __init__(self, *, settings: Settings) -> None:
        check_url(settings.tracking_uri, "/tracking_uri")
        if (settings.username is None) != (settings.password is None):
            raise InvalidSettings("/username", "username and password go together")
        if settings.token is not None and settings.username is not None:
            raise InvalidSettings("/token", "either a token, or a username and password")
        require("mlflow", extra="mlflow")
        self._settings = settings
        self._ctx: UploadContext | None = None
        self._api: MlflowApi | None = None
        self._exchange: HttpExchange | None = None
        self._store: Store | None = None
        #: Held while the run is looked for, so that it is made once.
        self._finding = threading.Lock()
        self._is_canceled: Callable[[], bool] = bool

    def open(self, ctx: UploadContext) -> None:
        """Import MLflow; the server hears of the first artifact first."""
        from mlflow.utils.credentials import get_default_host_creds

        from hostcore_builtin_plugins.uploaders.http_exchange import HttpExchange
        from hostcore_trackers.mlflow_api import MlflowApi
        from hostcore_trackers.mlflow_store import authorization

        settings = self._settings
        token = settings.token.value if settings.token else None
        username, password = settings.username, settings.password.value if settings.password else None
        self._api = MlflowApi(
            settings.tracking_uri,
            token=token,
            username=username,
            password=password,
            timeout_seconds=settings.timeout_seconds,
        )
        if token is None and username is None:
            found = get_default_host_creds(settings.tracking_uri)  # type: ignore[no-untyped-call]
            token, username, password = found.token, found.username, found.password
        headers = authorization(token=token, username=username, password=password)
        self._exchange = HttpExchange(headers=headers, timeout_seconds=settings.timeout_seconds)
        self._ctx, self._store, self._is_canceled = ctx, None, ctx.is_canceled

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        """Write the artifact under its path, unless it is there, and read it back.

        :raises TransientError: The server, or the way to it, fails; or the run is ending.
        :raises FatalError: The server refuses.
        """
        content = Content.of(artifact, self._is_canceled)
        return copy(self._found_store(), content, artifact.relative_path, verify=self._settings.verify)

    def close(self) -> None:
        """Close the connections."""
        if self._exchange is not None:
            self._exchange.close()
        self._api = self._exchange = self._store = None

    def _found_store(self) -> Store:
        with self._finding:
            if self._store is None:
                with upload_errors(self._settings.tracking_uri):
                    self._store = self._find_store()
            return self._store

    def _find_store(self) -> Store:
        """Where the MLflow run keeps its artifacts: with its server, or in a store that is written to from here."""
        from hostcore_builtin_plugins.uploaders.store_folder import StoreFolder
        from hostcore_trackers.mlflow_run import MlflowRun, experiment_id
        from hostcore_trackers.mlflow_store import ServedArtifacts

        settings, ctx, api, exchange = self._settings, self._ctx, self._api, self._exchange
        if ctx is None or api is None or exchange is None:
            raise FatalError("mlflow-artifacts is not open")
        experiment = settings.experiment or ctx.job.trainer or "hostcore"
        run = MlflowRun.find_or_create(
            api,
            experiment_id=experiment_id(api, experiment, create=True),
            name=settings.run_name or ctx.run_id,
            run_id=ctx.run_id,
            submitted_ms=_submitted_ms(ctx.run_dir),
            job=ctx.job,
        )
        uri = str(api.get("runs/get", run_id=run.id)["run"]["info"]["artifact_uri"])
        if uri.startswith("mlflow-artifacts:"):
            return ServedArtifacts(exchange, tracking_uri=settings.tracking_uri, artifact_uri=uri, run_id=run.id)
        return StoreFolder(uri, {}, settings.timeout_seconds)


def _submitted_ms(run_dir: str) -> int:
    """The time of the run's first event, by which the reporter ``mlflow`` knows its MLflow run.

    :raises TransientError: There is no event yet.
    """
    try:
        with Path(run_dir, "logs", "events.jsonl").open("rb") as log:
            return int(orjson.loads(log.readline())["time_ms"])
    except (FileNotFoundError, orjson.JSONDecodeError) as error:
        raise TransientError("the run has no event yet", retry_after_seconds=0.2) from error
