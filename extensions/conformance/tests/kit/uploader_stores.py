"""The other sides of the built-in uploaders, real ones, as harnesses of the kit."""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from checkout import TESTS

from hostcore_conformance.example import load_symbol

HERE = Path(__file__).resolve().parent
#: What is still written before the next transfer breaks off.
LEFT_BYTES = 2 << 20


def of_servers(name: str) -> Any:
    """What the servers of reporters have, too."""
    return load_symbol(f"server_sinks.py:{name}", HERE)


class FolderStore:
    """A folder of this machine, whose disk can be full.

    :param escaped: Whether the uploader's URIs have escapes.
    """

    def __init__(self, folder: Path, *, escaped: bool = False) -> None:
        self.folder = folder / "store"
        self.folder.mkdir()
        self._escaped = escaped
        self._limit: tuple[int, int] | None = None
        self.settings: dict[str, Any] = {"uri": str(self.folder)}

    def read(self, uri: str) -> bytes | None:
        self._heal()
        path = Path(self._path_of(uri))
        return path.read_bytes() if path.is_file() else None

    def _path_of(self, uri: str) -> str:
        return unquote(urlsplit(uri).path) if self._escaped else uri.removeprefix("file://")

    def objects(self) -> Sequence[str]:
        self._heal()
        return [f"file://{file}" for file in self.folder.rglob("*") if file.is_file() and file.name[0] != "."]

    def fail_next(self) -> None:
        """Let no file of this process grow beyond a size, until somebody looks."""
        self._limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LEFT_BYTES, self._limit[1]))

    def _heal(self) -> None:
        if self._limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
            self._limit = None


class Vault(FolderStore):
    """The folder of the uploader ``vault``, which has to be there, and has each content once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, escaped=True)
        self.settings = {"path": str(self.folder)}


@contextmanager
def http_store() -> Iterator[Any]:
    """A server that takes files by PUT."""
    store = load_symbol("harness_uploader.py:Store", HERE / "reference")()
    with of_servers("environment")(), store:
        yield HttpStore(store)


class HttpStore:
    """The same server, with the settings of the uploader ``http``."""

    def __init__(self, store: Any) -> None:
        self.read, self.objects, self.fail_next = store.read, store.objects, store.fail_next
        settings = store.settings
        self.settings = {**settings, "url": f"{settings['url']}/{{run_id}}/{{path}}", "timeout_seconds": 20.0}


class MlflowArtifacts:
    """An MLflow server that keeps artifacts, looked at in its folder, and reached through a proxy that can fail."""

    def __init__(self, artifacts: Path, proxy: Any) -> None:
        self._artifacts = artifacts
        self.fail_next = proxy.fail_next
        self.settings = {"tracking_uri": proxy.url, "token": of_servers("SECRET"), "timeout_seconds": 20.0}

    def read(self, uri: str) -> bytes | None:
        run, _, path = uri.removeprefix("runs:/").partition("/")
        found = [file for file in self._artifacts.glob(f"*/{run}/artifacts") if (file / path).is_file()]
        return (found[0] / path).read_bytes() if found else None

    def objects(self) -> Sequence[str]:
        files = [file for file in self._artifacts.rglob("*") if file.is_file()]
        parts = [file.relative_to(self._artifacts).parts for file in files]
        return [f"runs:/{run}/{'/'.join(path)}" for _, run, _, *path in parts]


@contextmanager
def mlflow_artifacts(folder: Path) -> Iterator[MlflowArtifacts]:
    with of_servers("mlflow_behind_proxy")(folder) as (proxy, _, artifacts):
        yield MlflowArtifacts(artifacts, proxy)


class Bucket:
    """A bucket of an S3 server, looked at directly, and reached through a proxy that can fail."""

    #: More than goes into one request.
    large_bytes = 17 << 20

    def __init__(self, bucket: Any, proxy: Any) -> None:
        self._bucket = bucket
        self.fail_next = proxy.fail_next
        options = {"key": "k", "secret": of_servers("SECRET"), "endpoint_url": proxy.url}
        self.settings = {"uri": "s3://runs/all", "storage_options": options, "timeout_seconds": 20.0}

    def read(self, uri: str) -> bytes | None:
        key = uri.removeprefix("s3://runs/")
        return self._bucket.read(key) if key in self._bucket.listing(key) else None

    def objects(self) -> Sequence[str]:
        return [f"s3://runs/{key}" for key in self._bucket.listing()]


@contextmanager
def s3_bucket() -> Iterator[Bucket]:
    make = load_symbol("buckets.py:bucket", TESTS / "faults")
    with of_servers("environment")(), make() as bucket, of_servers("proxy_before")(bucket.port) as proxy:
        yield Bucket(bucket, proxy)
