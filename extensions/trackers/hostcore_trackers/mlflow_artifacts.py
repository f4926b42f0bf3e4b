"""The uploader ``mlflow-artifacts``: copies the run into the artifact store of its MLflow run.

The API: https://mlflow.org/docs/latest/self-hosting/architecture/artifact-store/ (``mlflow-artifacts:``).
"""

import base64
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, unquote, urlsplit

import attrs
import orjson
from annotated_types import Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.http_exchange import check_url
from hostcore_builtin_plugins.stores.copying import Content, ObjectStore, copy
from hostcore_builtin_plugins.stores.errors import upload_errors
from hostcore_hookspecs import (
    Artifact,
    FatalError,
    InvalidSettings,
    Secret,
    TransientError,
    UploadContext,
    UploadReceipt,
    Uri,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hostcore_builtin_plugins.http_exchange import HttpExchange
    from hostcore_trackers.mlflow_api import MlflowApi

_ENDPOINT: Final = "/api/2.0/mlflow-artifacts/artifacts"


class MlflowArtifactsUploader:
    """Keeps artifacts beside what the reporter ``mlflow`` logs: in the same MLflow run, which either of them makes."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Server and run, as for the reporter ``mlflow``."""

        tracking_uri: Uri = attrs.field(metadata={"help": "The server: `http://host:5000`."})
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
        self._store: ObjectStore | None = None
        #: Held while the run is looked for, so that it is made once.
        self._finding = threading.Lock()
        self._is_canceled: Callable[[], bool] = bool

    def open(self, ctx: UploadContext) -> None:
        """Import MLflow; nothing is sent before the first artifact."""
        from mlflow.utils.credentials import get_default_host_creds

        from hostcore_builtin_plugins.http_exchange import HttpExchange
        from hostcore_trackers.mlflow_api import MlflowApi

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
            found = get_default_host_creds(settings.tracking_uri)
            token, username, password = found.token, found.username, found.password
        headers = _authorization(token=token, username=username, password=password)
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

    def _found_store(self) -> ObjectStore:
        with self._finding:
            if self._store is None:
                with upload_errors(self._settings.tracking_uri):
                    self._store = self._find_store()
            return self._store

    def _find_store(self) -> ObjectStore:
        """Find the store of the MLflow run's artifacts: its server, or a store that is written to from here."""
        from hostcore_builtin_plugins.stores.folder import StoreFolder
        from hostcore_trackers.mlflow_run import MlflowRun, experiment_id

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


class ServedArtifacts(ObjectStore):
    """The artifacts of one MLflow run, where its server keeps them itself.

    :param tracking_uri: Of the server.
    :param artifact_uri: Of the run: ``mlflow-artifacts:/<experiment>/<run>/artifacts``.
    :param run_id: MLflow's.
    """

    def __init__(self, exchange: "HttpExchange", *, tracking_uri: str, artifact_uri: str, run_id: str) -> None:
        from hostcore_builtin_plugins.uploaders.http_objects import HttpObjects

        self._exchange = exchange
        self._objects = HttpObjects(exchange)
        parts = urlsplit(artifact_uri)
        # The authority, if there is one, names another server that keeps the artifacts.
        scheme = urlsplit(tracking_uri).scheme
        server = f"{scheme}://{parts.netloc}" if parts.netloc else tracking_uri.rstrip("/")
        self._endpoint = f"{server}{_ENDPOINT}"
        self._root = parts.path.strip("/")
        self._run_id = run_id

    def uri(self, path: str) -> str:
        """See :class:`ObjectStore`. One that MLflow's own functions take."""
        return f"runs:/{self._run_id}/{path}"

    def size(self, path: str) -> int | None:
        """See :class:`ObjectStore`."""
        folder, _, name = path.rpartition("/")
        for entry in self._list(f"{self._root}/{folder}".rstrip("/")):
            if entry["path"].rpartition("/")[2] == name and not entry.get("is_dir"):
                return int(entry.get("file_size") or 0)  # the server leaves out what is 0
        return None

    def _list(self, folder: str) -> list[dict[str, Any]]:
        with self._exchange.send("GET", f"{self._endpoint}?path={quote(folder, safe='')}", also=(404,)) as answer:
            return orjson.loads(answer.read()).get("files", []) if answer.status != 404 else []

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """See :class:`ObjectStore`."""
        del size  # the answer has an end
        return self._objects.pieces(self._url(path), content)

    def put(self, content: Content, path: str) -> None:
        """See :class:`ObjectStore`. The server stores a file once it has all of it.

        :raises FatalError: The path is one that the server refuses, or would store under another name.
        """
        if "#" in path or unquote(path) != path:
            raise FatalError(f"MLflow takes no file name with # or an escape such as %41: {path}")
        self._objects.put(self._url(path), content)

    def _url(self, path: str) -> str:
        return f"{self._endpoint}/{quote(f'{self._root}/{path}')}"


def _authorization(*, token: str | None, username: str | None, password: str | None) -> Mapping[str, str]:
    """The header that MLflow's servers know a client by; none without credentials."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    if username is None:
        return {}
    pair = base64.b64encode(f"{username}:{password or ''}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
