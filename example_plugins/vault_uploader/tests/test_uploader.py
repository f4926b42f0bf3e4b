"""The uploader's methods, called as the host calls them; and what goes wrong, made to go wrong."""

import errno
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vault_uploader.uploader import VaultUploader

from hostcore_hookspecs import Artifact, FatalError, TransientError, UploadContext

Make = Callable[..., Artifact]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    path = tmp_path / "vault"
    path.mkdir()
    return path


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes artifacts of a run directory."""

    def make(name: str, content: bytes) -> Artifact:
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        return Artifact(kind="checkpoint", path=str(path), relative_path=name, size=len(content), sha256=sha256)

    return make


def opened(vault: Path, *, is_canceled: Callable[[], bool] = lambda: False) -> VaultUploader:
    uploader = VaultUploader(settings=VaultUploader.Settings(path=vault))
    prefix = "a/framework=line"
    uploader.open(UploadContext(run_id="a", run_dir="/runs/a", base_uri=None, prefix=prefix, is_canceled=is_canceled))
    return uploader


def objects(vault: Path) -> list[Path]:
    return [path for path in (vault / "objects").rglob("*") if path.is_file()]


def test_an_artifact_is_there_under_its_name_and_proved_by_its_checksum(vault: Path, make: Make) -> None:
    artifact = make("checkpoints/step-000010/model.pt", b"weights")
    receipt = opened(vault).upload_artifact(artifact)
    there = vault / "runs/a/framework=line/checkpoints/step-000010/model.pt"
    assert there.read_bytes() == b"weights"
    assert (receipt.uri, receipt.size, receipt.sha256) == (there.as_uri(), 7, artifact.sha256)
    assert not receipt.existed


def test_equal_content_takes_its_space_once(vault: Path, make: Make) -> None:
    uploader = opened(vault)
    for step in range(3):
        uploader.upload_artifact(make(f"checkpoints/step-{step}/frozen.pt", b"weights"))
    (content,) = objects(vault)
    assert content.stat().st_nlink == 4


def test_an_artifact_that_is_there_is_not_written_again(vault: Path, make: Make) -> None:
    artifact = make("model.pt", b"weights")
    before = opened(vault).upload_artifact(artifact)
    (content,) = objects(vault)
    written = content.stat()
    again = opened(vault).upload_artifact(artifact)  # by the process that came after one that was killed
    assert again.existed
    assert (again.uri, again.sha256) == (before.uri, before.sha256)
    assert (content.stat().st_ino, content.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_what_a_killed_process_left_halfway_is_finished(vault: Path, make: Make) -> None:
    artifact = make("model.pt", b"weights")
    content = vault / "objects" / artifact.sha256[:2] / artifact.sha256
    content.parent.mkdir(parents=True)
    content.write_bytes(b"weights")  # and no name in the run yet
    receipt = opened(vault).upload_artifact(artifact)
    assert (vault / "runs/a/framework=line/model.pt").samefile(content)
    assert not receipt.existed


def test_content_that_was_damaged_is_written_again(vault: Path, make: Make) -> None:
    artifact = make("model.pt", b"weights")
    opened(vault).upload_artifact(artifact)
    objects(vault)[0].write_bytes(b"w31ghts")
    assert opened(vault).upload_artifact(artifact).sha256 == artifact.sha256
    assert (vault / "runs/a/framework=line/model.pt").read_bytes() == b"weights"


def test_a_log_that_has_grown_takes_the_place_of_what_was_there(vault: Path, make: Make) -> None:
    uploader = opened(vault)
    uploader.upload_artifact(make("logs/events.jsonl", b"one\n"))
    uploader.upload_artifact(make("logs/events.jsonl", b"one\ntwo\n"))
    assert (vault / "runs/a/framework=line/logs/events.jsonl").read_bytes() == b"one\ntwo\n"


def test_several_threads_with_the_same_content_do_not_disturb_one_another(vault: Path, make: Make) -> None:
    uploader = opened(vault)
    artifacts = [make(f"step-{number}/model.pt", b"weights" * 100_000) for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        receipts = list(threads.map(uploader.upload_artifact, artifacts))
    assert {receipt.sha256 for receipt in receipts} == {artifacts[0].sha256}
    assert list(vault.rglob("*.partial")) == []


def test_a_run_that_ends_is_not_kept_waiting_and_nothing_partial_is_visible(vault: Path, make: Make) -> None:
    answers = iter([False, True])
    uploader = opened(vault, is_canceled=lambda: next(answers))
    with pytest.raises(TransientError, match="the run is ending"):
        uploader.upload_artifact(make("model.pt", bytes(3 << 20)))
    assert [path for path in vault.rglob("*") if path.is_file()] == []


def test_a_disk_that_is_not_mounted_is_worth_another_try(vault: Path, make: Make) -> None:
    artifact, uploader = make("model.pt", b"weights"), opened(vault)
    vault.rmdir()
    with pytest.raises(TransientError, match="is not there"):
        uploader.upload_artifact(artifact)
    assert not vault.exists()


@pytest.mark.parametrize(("number", "error"), [("EROFS", FatalError), ("ENOSPC", TransientError)])
def test_a_full_disk_may_have_room_again_and_a_read_only_one_stays_so(
    vault: Path, make: Make, monkeypatch: pytest.MonkeyPatch, number: str, error: type[Exception]
) -> None:
    code = getattr(errno, number)

    def refuse(*_: object) -> None:  # a full disk and a read-only one are not at hand
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(error, match=os.strerror(code)):
        opened(vault).upload_artifact(make("model.pt", b"weights"))
    assert [path for path in vault.rglob("*") if path.is_file()] == []
