"""The uploader ``fsspec``, and a way to the store that fails: what is told, and what is left behind."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hostcore_hookspecs import Artifact, FatalError, TransientError

Make = Callable[..., Artifact]
PREFIX = "run-1/framework=tiny"
#: Three parts.
BIG = bytes(12_000_000)

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture
def way(s3: Any, s3_proxy: Any) -> Any:
    """S3 as it is, behind a proxy for the uploader."""
    return attrs.evolve(s3, options={**s3.options, "endpoint_url": f"http://{s3_proxy.address}"})


@pytest.fixture
def uploads_left(s3: Any, s3_client: Any) -> Callable[[], list[Any]]:
    """Multipart uploads in the bucket that were neither completed nor aborted."""
    return lambda: s3_client.list_multipart_uploads(Bucket=bucket_of(s3)).get("Uploads", [])


def bucket_of(store: Any) -> str:
    return store.uri.removeprefix("s3://").partition("/")[0]


def s3_error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as {code} has it</Message></Error>".encode()


def test_a_store_that_is_busy_is_left_alone_for_as_long_as_it_says(way: Any, s3_proxy: Any, artifact: Make) -> None:
    s3_proxy.fail("PUT", status=503, headers={"Retry-After": "7"}, body=s3_error("SlowDown"))
    with way.opened() as uploader, pytest.raises(TransientError, match="as SlowDown has it") as raised:
        uploader.upload_artifact(artifact("a.bin", b"content"))
    assert raised.value.retry_after_seconds == 7
    s3_proxy.faults.clear()
    with way.opened() as uploader:
        assert uploader.upload_artifact(artifact("a.bin", b"content")).size == 7


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (FatalError, {"AccessDenied": 403, "InvalidAccessKeyId": 403, "InvalidArgument": 400}),
        (TransientError, {"IncompleteBody": 400, "RequestTimeout": 400, "InternalError": 500, "SlowDown": 503}),
    ],
)
def test_only_what_may_pass_is_to_be_tried_again(
    way: Any, s3_proxy: Any, artifact: Make, error: type[Exception], answers: dict[str, int]
) -> None:
    with way.opened() as uploader:
        for code, status in answers.items():
            s3_proxy.faults.clear()
            s3_proxy.fail("PUT", status=status, body=s3_error(code))
            with pytest.raises(error, match=code):
                uploader.upload_artifact(artifact("a.bin", b"content"))


def test_who_may_write_and_not_look_uploads_without_looking(way: Any, s3_proxy: Any, artifact: Make) -> None:
    s3_proxy.fail("HEAD", status=403)
    with way.opened() as uploader, pytest.raises(FatalError, match="permission denied"):
        uploader.upload_artifact(artifact("a.bin", b"content"))  # reading back is another matter
    assert way.objects() == {f"{PREFIX}/a.bin": b"content"}


@pytest.mark.parametrize("store_kind", ["s3", "gcs"])
def test_a_bucket_that_is_not_there_is_told_at_once(
    request: pytest.FixtureRequest, artifact: Make, store_kind: str
) -> None:
    store = request.getfixturevalue(store_kind)
    protocol = store.uri.partition("://")[0]
    with store.opened(uri=f"{protocol}://no-such-bucket/runs") as uploader:
        for content in (b"small", BIG):
            with pytest.raises(FatalError, match="no bucket or container no-such-bucket"):
                uploader.upload_artifact(artifact("a.bin", content))


@pytest.mark.parametrize("what", ["reset", "answer"])
def test_parts_of_an_upload_that_fails_are_removed(
    way: Any, s3_proxy: Any, artifact: Make, uploads_left: Callable[[], list[Any]], what: str
) -> None:
    s3_proxy.fail("PUT", path="partNumber=3", does=what, body=s3_error("InternalError"))
    with way.opened() as uploader, pytest.raises(TransientError):
        uploader.upload_artifact(artifact("model.bin", BIG))
    assert any("partNumber=2" in request for request in s3_proxy.passed)
    assert way.objects() == {}
    assert uploads_left() == []


def test_parts_that_a_dead_process_has_left_are_removed_by_the_next(
    s3: Any, s3_client: Any, artifact: Make, uploads_left: Callable[[], list[Any]]
) -> None:
    keys = {name: f"runs/{PREFIX}/{name}" for name in ("model.bin", "model.bin.index")}
    for key in keys.values():
        s3_client.create_multipart_upload(Bucket=bucket_of(s3), Key=key)
    with s3.opened() as uploader:
        uploader.upload_artifact(artifact("model.bin", BIG))
    assert [left["Key"] for left in uploads_left()] == [keys["model.bin.index"]]  # another object's
    assert s3.objects() == {f"{PREFIX}/model.bin": BIG}


@pytest.mark.parametrize("content", [b"small", BIG], ids=["one request", "in parts"])
def test_an_answer_that_is_lost_after_the_write_makes_no_second_write(
    way: Any, s3_proxy: Any, artifact: Make, content: bytes
) -> None:
    s3_proxy.fail("POST" if content is BIG else "PUT", path="uploadId" if content is BIG else "", does="lose")
    with way.opened() as uploader:
        with pytest.raises(TransientError):
            uploader.upload_artifact(artifact("a.bin", content))
        s3_proxy.faults.clear()
        s3_proxy.passed.clear()
        receipt = uploader.upload_artifact(artifact("a.bin", content))
    assert receipt.existed
    assert not [request for request in s3_proxy.passed if request.startswith(("PUT", "POST"))]


def test_an_object_that_is_cut_short_on_the_way_back_is_not_taken_for_whole(
    way: Any, s3_proxy: Any, artifact: Make
) -> None:
    s3_proxy.fail("GET", path="tiny/a.bin", status=206, body=b"cont")
    with way.opened() as uploader:
        receipt = uploader.upload_artifact(artifact("a.bin", b"content"))
    assert (receipt.size, receipt.sha256) != (7, artifact("a.bin", b"content").sha256)


def test_a_store_that_never_answers_is_given_up_after_the_timeout(way: Any, s3_proxy: Any, artifact: Make) -> None:
    s3_proxy.fail("HEAD", does="silence")
    with way.opened(timeout_seconds=0.2) as uploader, pytest.raises(TransientError):
        uploader.upload_artifact(artifact("a.bin", b"content"))


@pytest.mark.parametrize("what", ["reset", "answer"])
def test_a_session_of_google_cloud_storage_that_fails_shows_nothing(
    gcs: Any, gcs_proxy: Any, artifact: Make, what: str
) -> None:
    way = attrs.evolve(gcs, options={**gcs.options, "endpoint_url": f"http://{gcs_proxy.address}"})
    gcs_proxy.fail("POST", path="upload_id", after=1, does=what, status=503, body=b'{"error": {"code": 503}}')
    gcs_proxy.fail("PUT", path="upload_id", after=1, does=what, status=503, body=b'{"error": {"code": 503}}')
    with way.opened() as uploader, pytest.raises(TransientError):
        uploader.upload_artifact(artifact("model.bin", BIG))
    assert gcs.objects() == {}


def test_a_way_that_google_cloud_storage_forbids_is_told_at_once(gcs: Any, gcs_proxy: Any, artifact: Make) -> None:
    way = attrs.evolve(gcs, options={**gcs.options, "endpoint_url": f"http://{gcs_proxy.address}"})
    gcs_proxy.fail("POST", status=403, body=b'{"error": {"code": 403, "message": "no storage.objects.create"}}')
    with way.opened() as uploader, pytest.raises(FatalError, match=r"no storage\.objects\.create"):
        uploader.upload_artifact(artifact("a.bin", b"content"))
