"""Settings that are refused before anything is loaded or sent."""

import sys
from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_builtin_plugins.uploaders.http import HttpUploader
from hostcore_hookspecs import FatalError, HostcoreError, InvalidSettings, Secret
from hostcore_trackers.mlflow_artifacts import MlflowArtifactsUploader


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


def test_options_that_a_store_does_not_know_are_fatal_and_not_shown(context: Any) -> None:
    with pytest.raises(FatalError, match="nowhere to upload to") as raised:
        FsspecUploader().open(context())
    assert "checkpoint_base_uri" in (raised.value.hint or "")
    options = {"endpoint": "", "secret": "do not show", "access": "everything"}
    settings = FsspecUploader.Settings(uri="gs://bucket/runs", storage_options=options)
    assert "do not show" not in repr(settings)
    with pytest.raises(FatalError, match="access must be one of"):
        FsspecUploader(settings=settings).open(context())


HTTP, MLFLOW = HttpUploader, MlflowArtifactsUploader
SERVER = {"tracking_uri": "http://localhost:5000"}
USER = {**SERVER, "username": "me", "password": Secret("mine")}


@pytest.mark.parametrize(
    ("uploader", "settings", "pointer", "message"),
    [
        (HTTP, {}, "", "nowhere to upload to"),
        (HTTP, {"url": "https://a/files"}, "/url", "without {path} every file would be put over the one before"),
        (HTTP, {"url": "https://a/{path}/{name}"}, "/url", "there is nothing to put in for {name}"),
        (HTTP, {"url": "https://a/{path}/{"}, "/url", "not a template"),
        (HTTP, {"url": "ftp://a/{path}"}, "/url", "http or https"),
        (HTTP, {"url": "https://user:password@a/{path}"}, "/url", "ends up in logs"),
        (HTTP, {"checkpoint_url": "here"}, "/checkpoint_url", "http or https"),
        (HTTP, {"url": "https://a/{path}", "headers": {"X-A": "one\ntwo"}}, "/headers/X-A", "one line of text"),
        (MLFLOW, {"tracking_uri": "sqlite:///mlflow.db"}, "/tracking_uri", ""),
        (MLFLOW, {**SERVER, "username": "me"}, "/username", ""),
        (MLFLOW, {**USER, "token": Secret("t")}, "/token", ""),
    ],
)
def test_settings_that_cannot_work_are_refused(
    uploader: Any, settings: dict[str, Any], pointer: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("CHECKPOINT", "SAMPLE", "TERMINAL"):
        monkeypatch.delenv(f"TRAINER_UPLOAD_{call}_URL", raising=False)
    with pytest.raises(InvalidSettings) as raised:
        uploader(settings=uploader.Settings(**settings))
    assert raised.value.pointer == pointer
    assert message in raised.value.message
