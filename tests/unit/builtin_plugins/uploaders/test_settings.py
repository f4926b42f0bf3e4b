"""What is refused before anything is loaded or sent."""

import json
import subprocess
import sys
from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_builtin_plugins.uploaders.http import HttpUploader
from hostcore_hookspecs import FatalError, HostcoreError, InvalidSettings, Secret
from hostcore_trackers.mlflow_artifacts import MlflowArtifactsUploader

IMPORT_ALL = """
import json, sys
from hostcore_builtin_plugins.uploaders import fsspec, http
from hostcore_trackers import mlflow_artifacts
fsspec.FsspecUploader(settings=fsspec.FsspecUploader.Settings(uri="s3://bucket/runs"))
http.HttpUploader(settings=http.HttpUploader.Settings(url="https://store.example/{path}"))
mlflow_artifacts.MlflowArtifactsUploader(
    settings=mlflow_artifacts.MlflowArtifactsUploader.Settings(tracking_uri="http://localhost:5000")
)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_no_uploader_loads_the_host_or_a_client_before_it_is_opened() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    clients = {"fsspec", "s3fs", "gcsfs", "adlfs", "boto3", "mlflow", "urllib3", "aiohttp", "requests"}
    assert (clients | {"hostcore", "torch", "pyarrow", "rich"}).isdisjoint(json.loads(answer.stdout))


@pytest.mark.parametrize(
    ("uri", "message", "hint"),
    [
        ("mirror/here", "'mirror/here' is neither a URI nor an absolute path", "write an absolute path, or a URI"),
        ("", "'' is neither a URI nor an absolute path", "write an absolute path, or a URI"),
        ("s3://", "'s3://' names no bucket", "write s3://bucket/folder"),
        ("https://store.example/runs", "fsspec cannot write to an HTTP server", "the uploader http does"),
    ],
)
def test_a_place_that_nothing_can_be_uploaded_to_is_refused(uri: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as raised:
        FsspecUploader(settings=FsspecUploader.Settings(uri=uri))
    assert raised.value.pointer == "/uri"
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [("s3://bucket", "s3fs", "s3"), ("gs://bucket", "gcsfs", "gcs"), ("abfs://container", "adlfs", "azure")],
)
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    uri: str, package: str, extra: str, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(HostcoreError, match=package) as raised:
        FsspecUploader(settings=FsspecUploader.Settings(uri=uri))
    assert install_command(extra) in (raised.value.hint or "")
    with pytest.raises(FatalError, match=package) as raised:
        FsspecUploader().open(context(base_uri=uri))
    assert install_command(extra) in (raised.value.hint or "")


def test_fsspec_without_any_place_says_where_to_name_one(context: Any) -> None:
    with pytest.raises(FatalError, match="nowhere to upload to") as raised:
        FsspecUploader().open(context())
    assert "checkpoint_base_uri" in (raised.value.hint or "")


def test_options_that_a_store_does_not_know_are_fatal_and_not_shown(context: Any) -> None:
    options = {"endpoint": "", "secret": "do not show"}
    settings = FsspecUploader.Settings(uri="gs://bucket/runs", storage_options={**options, "access": "everything"})
    assert "do not show" not in repr(settings)
    with pytest.raises(FatalError, match="access must be one of"):
        FsspecUploader(settings=settings).open(context())


@pytest.mark.parametrize(
    ("settings", "pointer", "message"),
    [
        ({}, "", "nowhere to upload to"),
        ({"url": "https://store.example/files"}, "/url", "without {path} every file would be put over the one before"),
        ({"url": "https://store.example/{path}/{name}"}, "/url", "there is nothing to put in for {name}"),
        ({"url": "https://store.example/{path}/{"}, "/url", "not a template"),
        ({"url": "ftp://store.example/{path}"}, "/url", "http or https"),
        ({"url": "https://user:password@store.example/{path}"}, "/url", "ends up in logs"),
        ({"checkpoint_url": "here"}, "/checkpoint_url", "http or https"),
        ({"url": "https://store.example/{path}", "headers": {"X-A": "one\ntwo"}}, "/headers/X-A", "one line of text"),
    ],
)
def test_http_refuses_what_cannot_work(
    settings: dict[str, Any], pointer: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("CHECKPOINT", "SAMPLE", "TERMINAL"):
        monkeypatch.delenv(f"TRAINER_UPLOAD_{call}_URL", raising=False)
    with pytest.raises(InvalidSettings) as raised:
        HttpUploader(settings=HttpUploader.Settings(**settings))
    assert raised.value.pointer == pointer
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"tracking_uri": "sqlite:///mlflow.db"}, "/tracking_uri"),
        ({"tracking_uri": "http://localhost:5000", "username": "me"}, "/username"),
        (
            {
                "tracking_uri": "http://localhost:5000",
                "username": "me",
                "password": Secret("mine"),
                "token": Secret("t"),
            },
            "/token",
        ),
    ],
)
def test_mlflow_artifacts_refuses_what_cannot_work(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        MlflowArtifactsUploader(settings=MlflowArtifactsUploader.Settings(**settings))
    assert raised.value.pointer == pointer
