"""The uploader ``fsspec`` and every kind of store: what arrives is what was sent, whole or not at all."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hostcore_hookspecs import Artifact, TransientError

Make = Callable[..., Artifact]
PREFIX = "run-1/framework=tiny"
NAMES = [
    "checkpoints/step-000200.json",
    "checkpoints/step-000200/trainer/with space/a+b&c=d.bin",
    "samples/step-000200/größe-日本語-🙂.txt",
    "samples/100%/%41#1,x~y!'(z).txt",
]


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def test_names_and_bytes_arrive_exactly(store: Any, artifact: Make) -> None:
    artifacts = [artifact(name, noise(3000, seed)) for seed, name in enumerate(NAMES)]
    with store.opened() as uploader:
        receipts = [uploader.upload_artifact(one) for one in artifacts]
    assert store.objects() == {f"{PREFIX}/{name}": noise(3000, seed) for seed, name in enumerate(NAMES)}
    assert [(receipt.size, receipt.sha256, receipt.existed) for receipt in receipts] == [
        (one.size, one.sha256, False) for one in artifacts
    ]
    assert all(receipt.uri.endswith(f"{PREFIX}/{name}") for receipt, name in zip(receipts, NAMES, strict=True))


@pytest.mark.parametrize("verify", [True, False])
def test_what_is_there_is_not_written_again(store: Any, artifact: Make, verify: bool) -> None:
    all_there = [artifact("a.bin", noise(5000)), artifact("logs/empty.log", b"")]
    with store.opened() as uploader:
        assert [uploader.upload_artifact(one).existed for one in all_there] == [False, False]
    with store.opened(verify=verify) as uploader:  # another process, say
        again = [uploader.upload_artifact(one) for one in all_there]
    assert [(one.existed, one.size, one.sha256) for one in again] == [(True, one.size, one.sha256) for one in all_there]
    assert store.objects() == {f"{PREFIX}/a.bin": noise(5000), f"{PREFIX}/logs/empty.log": b""}


@pytest.mark.parametrize("verify", [True, False])
def test_another_file_under_the_name_is_replaced_also_one_of_the_same_size(
    store: Any, artifact: Make, verify: bool
) -> None:
    with store.opened(verify=verify) as uploader:
        uploader.upload_artifact(artifact("a.bin", noise(5000)))
        same_size = uploader.upload_artifact(artifact("a.bin", noise(5000, seed=1)))
        assert store.objects() == {f"{PREFIX}/a.bin": noise(5000, seed=1)}
        shorter = uploader.upload_artifact(artifact("a.bin", noise(10)))
    assert store.objects() == {f"{PREFIX}/a.bin": noise(10)}
    assert [(receipt.existed, receipt.size) for receipt in (same_size, shorter)] == [(False, 5000), (False, 10)]
    assert bool(shorter.sha256) is verify


@pytest.mark.parametrize("kind", ["local", "s3", "gcs"])
def test_20_megabytes_arrive(request: pytest.FixtureRequest, artifact: Make, kind: str) -> None:
    store, big = request.getfixturevalue(kind), artifact("model.safetensors", noise(20_000_000))
    with store.opened() as uploader:
        receipt = uploader.upload_artifact(big)
    assert (receipt.size, receipt.sha256) == (big.size, big.sha256)
    assert store.objects() == {f"{PREFIX}/model.safetensors": noise(20_000_000)}


def test_several_threads_upload_at_once(store: Any, artifact: Make) -> None:
    artifacts = [artifact(f"folder-{n % 3}/{n}.bin", noise(20_000, seed=n)) for n in range(16)]
    with store.opened() as uploader, ThreadPoolExecutor(4) as threads:
        receipts = list(threads.map(uploader.upload_artifact, artifacts))
    assert [receipt.sha256 for receipt in receipts] == [one.sha256 for one in artifacts]
    assert store.objects() == {f"{PREFIX}/folder-{n % 3}/{n}.bin": noise(20_000, seed=n) for n in range(16)}


@pytest.mark.usefixtures("small_parts")
def test_an_upload_that_is_given_up_leaves_what_was_there(store: Any, artifact: Make) -> None:
    asked = iter([False, True])
    with store.opened() as uploader:
        uploader.upload_artifact(artifact("model.bin", b"the old one"))
    with (
        store.opened(is_canceled=lambda: next(asked, True)) as uploader,
        pytest.raises(TransientError, match="given up because the run is ending"),
    ):
        uploader.upload_artifact(artifact("model.bin", noise(12_000_000)))
    assert store.objects() == {f"{PREFIX}/model.bin": b"the old one"}


def test_what_others_have_changed_since_is_seen(store: Any, artifact: Make) -> None:
    one, other = artifact("a.bin", noise(5000)), artifact("a.bin", noise(5000, seed=1))
    with store.opened() as here, store.opened() as there:
        here.upload_artifact(one)
        there.upload_artifact(other)
        assert not here.upload_artifact(one).existed
        assert here.upload_artifact(one).existed
