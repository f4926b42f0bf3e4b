"""A store means the same at every door: for an input, for a data source and for an uploader."""

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.supervisor.remote.inputs import fetch_inputs
from hostcore_builtin_plugins.sources.data_files import find_files
from hostcore_builtin_plugins.stores.errors import upload_errors
from hostcore_builtin_plugins.stores.folder import StoreFolder
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_hookspecs import HostcoreError, InvalidData, TransientError, UploadContext


class TroubledStore(MemoryFileSystem):
    """``trouble://``: it answers every question with an exception."""

    protocol = "trouble"
    cachable = False
    answer: BaseException

    def info(self, path: str, **_: Any) -> Any:
        raise self.answer

    ls = find = cat_file = info


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))
    fsspec.register_implementation("trouble", TroubledStore, clobber=True)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # no other process gets its port, and it does not listen
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def fetch(uri: str, options: Mapping[str, Any]) -> None:
    inputs = {"model": {"uri": uri, "storage_options": dict(options)}}
    try:
        fetch_inputs(load_job({"trainer": "x:Y", "max_steps": 1, "inputs": inputs}), (), lambda _: None)
    except Errors as found:
        raise found.errors[0] from found


def find(uri: str, options: Mapping[str, Any]) -> None:
    find_files([uri], suffixes=(".parquet",), storage_options=options, pointer="/dataset/paths")


def upload(uri: str, options: Mapping[str, Any]) -> None:
    context = UploadContext(run_id="a", run_dir="/runs/a", base_uri=None, prefix="a", is_canceled=lambda: False)
    (claims := Path(os.environ["HOSTCORE_CACHE_DIR"]).with_name("a") / "attempts").mkdir(parents=True)
    (claims / "1.json").write_text("{}")
    uploader = FsspecUploader(settings=FsspecUploader.Settings(uri=uri, storage_options=options))
    uploader.open(attrs.evolve(context, run_dir=str(claims.parent)))


def unanswered(error: Exception) -> Exception:
    found = FileNotFoundError("http://a/x")
    found.__cause__ = error
    return found


class CredentialRetrievalError(ConnectionError):
    """As botocore has it: what gives the credentials of a role did not answer."""


@attrs.frozen(kw_only=True)
class Meaning:
    code: str
    message: str
    hint: str
    may_pass: bool = False


SCHEME = Meaning(code="store.scheme", message="URIs are unknown here", hint="did you mean s3://")
PACKAGE = Meaning(code="store.package", message="need a package that is not installed", hint="pip install dropbox")
OPTIONS = Meaning(code="store.options", message="missing 1 required positional argument: 'fo'", hint="storage_options")
SILENT = Meaning(code="store.unreachable", message="cannot be reached", hint="the store is up", may_pass=True)
UNUSABLE = Meaning(code="store.unreachable", message="cannot be used", hint="the store is up", may_pass=True)
DENIED = Meaning(code="store.denied", message="permission denied", hint="credentials")
FULL = Meaning(code="store.no_space", message="the disk is full", hint="make room", may_pass=True)


@pytest.mark.parametrize("door", [fetch, find, upload])
@pytest.mark.parametrize(
    ("store", "meaning"),
    [
        ("s4://bucket/x", SCHEME),
        ("dropbox://folder/x", PACKAGE),
        ("reference://x", OPTIONS),
        ("ftp://127.0.0.1:{port}/x", SILENT),
        (ConnectionError("no route"), SILENT),
        (TimeoutError(), SILENT),
        (EOFError("the server hung up"), SILENT),
        (CredentialRetrievalError("Error when retrieving credentials from container-role"), SILENT),
        (OSError("https://a/my-credentials is busy"), UNUSABLE),
        (unanswered(ConnectionRefusedError("refused")), SILENT),
        (PermissionError("Access Denied"), DENIED),
        (OSError("Unable to locate credentials"), DENIED),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), FULL),
    ],
)
def test_a_store_means_the_same_at_each_door(
    door: Callable[..., None],
    store: str | Exception,
    meaning: Meaning,
    closed_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = store.format(port=closed_port) if isinstance(store, str) else "trouble://folder/x"
    monkeypatch.setattr(TroubledStore, "answer", store, raising=False)
    with pytest.raises(HostcoreError) as caught:
        door(uri, {})
    error = caught.value
    assert meaning.message in error.message
    assert meaning.hint in str(error.hint)
    assert error.file
    if door is fetch:
        assert (error.code, error.pointer) == (meaning.code, "/inputs/model")
    elif door is find:
        assert (type(error), error.pointer) == (InvalidData, "/dataset/paths/0")
    else:
        assert isinstance(error, TransientError) is meaning.may_pass


@pytest.mark.parametrize("door", [fetch, find, upload])
def test_options_never_put_another_file_system_in_place_of_the_scheme(door: Callable[..., None]) -> None:
    with pytest.raises(HostcoreError, match="name another file system") as caught:
        door("memory://folder/x", {"protocol": "file"})
    assert "the scheme of the URI decides" in str(caught.value.hint)


def test_an_upload_is_tried_again_after_an_exception_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TroubledStore, "answer", RuntimeError("protocol error"), raising=False)
    uri = "trouble://folder/x"
    with pytest.raises(TransientError, match="protocol error"), upload_errors(uri):
        StoreFolder(uri, {}, 10.0).size("step-000010.json")
