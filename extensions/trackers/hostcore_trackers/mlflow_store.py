"""The artifacts of one MLflow run, where its server keeps them itself.

The API: https://mlflow.org/docs/latest/self-hosting/architecture/artifact-store/ (``mlflow-artifacts:``).
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import orjson

from hostcore_builtin_plugins.uploaders.copying import Content, Store
from hostcore_builtin_plugins.uploaders.http_exchange import HttpExchange
from hostcore_builtin_plugins.uploaders.http_objects import HttpObjects
from hostcore_hookspecs import FatalError

_ENDPOINT: Final = "/api/2.0/mlflow-artifacts/artifacts"


class ServedArtifacts(Store):
    """Artifacts that go through the tracking server.

    :param tracking_uri: Of the server.
    :param artifact_uri: Of the run: ``mlflow-artifacts:/<experiment>/<run>/artifacts``.
    :param run_id: MLflow's.
    """

    def __init__(self, exchange: HttpExchange, *, tracking_uri: str, artifact_uri: str, run_id: str) -> None:
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
        """See :class:`Store`. One that MLflow's own functions take."""
        return f"runs:/{self._run_id}/{path}"

    def size(self, path: str) -> int | None:
        """See :class:`Store`."""
        folder, _, name = path.rpartition("/")
        for entry in self._list(f"{self._root}/{folder}".rstrip("/")):
            if entry["path"].rpartition("/")[2] == name and not entry.get("is_dir"):
                return int(entry.get("file_size") or 0)  # the server leaves out what is 0
        return None

    def _list(self, folder: str) -> list[dict[str, Any]]:
        with self._exchange.send("GET", f"{self._endpoint}?path={quote(folder, safe='')}", also=(404,)) as answer:
            return orjson.loads(answer.read()).get("files", []) if answer.status != 404 else []

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """See :class:`Store`."""
        del size  # the answer has an end
        return self._objects.pieces(self._url(path), content)

    def put(self, content: Content, path: str) -> None:
        """See :class:`Store`. The server stores a file once it has all of it.

        :raises FatalError: The path is one that the server refuses, or would store under another name.
        """
        if "#" in path or unquote(path) != path:
            raise FatalError(f"MLflow takes no file name with # or an escape such as %41: {path}")
        self._objects.put(self._url(path), content)

    def _url(self, path: str) -> str:
        return f"{self._endpoint}/{quote(f'{self._root}/{path}')}"


def authorization(*, token: str | None, username: str | None, password: str | None) -> Mapping[str, str]:
    """The header that MLflow's servers know a client by; none without credentials."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    if username is None:
        return {}
    pair = base64.b64encode(f"{username}:{password or ''}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
