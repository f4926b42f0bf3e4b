"""Uploaders that fail, hang, lie, or are slow: nothing is lost in silence, and nothing is told twice."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from uploading import PATIENCE_SECONDS, QUICK, Drive, Folder, Gate, Run, until

from hostcore.checkpoints.find import newest
from hostcore.supervisor.delivery.calls import QuickRetries
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import FatalError
from hostcore_hookspecs.uploader import Artifact, UploadReceipt

CHECKPOINT = "checkpoints/step-000100"


class Outage:
    """Refuses everything until it is over."""

    def __init__(self, folder: Folder, *, only: str = "") -> None:
        self.refused = 0
        self.is_over = False

        def before(artifact: Artifact) -> None:
            if not self.is_over and artifact.relative_path.startswith(only):
                self.refused += 1
                raise ConnectionResetError("connection reset by peer")

        folder.before = before


def test_an_outage_is_told_once_and_everything_is_there_after_it(run: Run, mirror: Folder, driven: Drive) -> None:
    uploads = driven(mirror)
    uploads.save(50)
    uploads.drain()  # with the log: nothing else arrives in the outage
    outage = Outage(mirror, only="checkpoints/")
    uploads.save(100, files=10)
    until(lambda: outage.refused > 8)
    outage.is_over = True
    uploads.drain()
    (told,) = uploads.of(events.UploadFailed)
    assert (told.path, told.will_retry) == (CHECKPOINT, True)
    assert "ConnectionResetError: connection reset by peer" in told.message
    (warning,) = uploads.of(events.Warning)
    assert warning.code == "uploader.recovered"
    assert newest(mirror.root / "checkpoints").found is not None
    assert set(mirror.writes.values()) == {1}
    until(lambda: uploads.uploads.missing() == [])  # a copy of the log may be on its way


def test_a_second_outage_is_told_of_a_step_that_was_written_again_in_the_first(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    refused: list[str] = []
    down = {"first", "third"}

    def before(artifact: Artifact) -> None:
        content = Path(artifact.path).read_text() if artifact.relative_path.endswith(".bin") else ""
        if found := [one for one in down if one in content]:
            refused.extend(found)
            raise ConnectionResetError("connection reset by peer")

    mirror.before = before
    uploads = driven(mirror)
    uploads.save(100, content="first")
    until(lambda: refused.count("first") > 3)
    for content in ("second", "third"):
        run.remove(100)
        uploads.save(100, content=content)
        if content in down:
            until(lambda: refused.count("third") > 3)
            down.clear()
        uploads.drain()
    # A probe that comes between the removal of a step and its next save gives the old one up: no outage.
    outages = [one.path for one in uploads.of(events.UploadFailed) if one.will_retry]
    assert outages == [CHECKPOINT] * 2


@pytest.mark.parametrize("error", [ConnectionResetError(), SystemExit(3), MemoryError(), GeneratorExit()], ids=repr)
def test_a_failure_of_any_kind_that_a_retry_mends_is_not_told(
    run: Run, mirror: Folder, driven: Drive, error: BaseException
) -> None:
    failed: set[str] = set()

    def before(artifact: Artifact) -> None:
        if artifact.relative_path not in failed:
            failed.add(artifact.relative_path)
            raise error

    mirror.before = before
    uploads = driven(mirror, limits=attrs.evolve(QUICK, quick=QuickRetries()))
    uploads.save(100)
    uploads.drain()
    assert uploads.of(events.UploadFailed) == []
    assert f"{CHECKPOINT}.json" in mirror.files


def test_one_artifact_that_fails_does_not_keep_the_others(run: Run, mirror: Folder, driven: Drive) -> None:
    outage = Outage(mirror, only=f"{CHECKPOINT}/part-1")
    uploads = driven(mirror)
    for step in (100, 200, 300):
        uploads.save(step)
    until(lambda: len(uploads.of(events.ArtifactUploaded)) == 4)  # two documents, two checkpoints
    until(lambda: outage.refused > 5)
    assert f"{CHECKPOINT}.json" not in mirror.files
    assert [one.path for one in uploads.of(events.UploadFailed)] == [CHECKPOINT]
    assert CHECKPOINT in uploads.uploads.pending().by_uploader["folder"].failing
    outage.is_over = True
    uploads.drain()
    assert f"{CHECKPOINT}.json" in mirror.files


def test_an_artifact_that_fails_while_others_arrive_is_no_outage(run: Run, mirror: Folder, driven: Drive) -> None:
    refused: list[int] = []
    begun = threading.Event()

    def before(artifact: Artifact) -> None:
        if artifact.relative_path == f"{CHECKPOINT}/part-1.bin":
            if not refused:
                arrived = len(mirror.order)
                begun.set()
                until(lambda: len(mirror.order) > arrived + 6)  # by the three other threads
                refused.append(arrived)
                raise ConnectionResetError
        elif artifact.relative_path.startswith(f"{CHECKPOINT}/part-1"):
            assert begun.wait(PATIENCE_SECONDS)  # ten parts, so that enough of them arrive while part-1 is under way

    mirror.before = before
    uploads = driven(mirror)
    uploads.save(100, files=30)
    uploads.drain()
    assert refused
    assert uploads.of(events.Warning) == []
    assert [one.path for one in uploads.of(events.UploadFailed)] == [CHECKPOINT]


def test_a_fatal_error_gives_the_artifact_up_for_this_attempt(run: Run, mirror: Folder, driven: Drive) -> None:
    def before(artifact: Artifact) -> None:
        if artifact.relative_path.startswith(f"{CHECKPOINT}/part-1"):
            raise FatalError("too large for this store")

    mirror.before = before
    uploads = driven(mirror, required=True)
    for step in (100, 200):
        uploads.save(step)
    uploads.finish()
    (told,) = uploads.of(events.UploadFailed)
    assert (told.path, told.will_retry) == (CHECKPOINT, False)
    assert mirror.calls[f"{CHECKPOINT}/part-1.bin"] == 1
    assert "checkpoints/step-000200.json" in mirror.files
    assert f"{CHECKPOINT}.json" not in mirror.files
    assert uploads.uploads.missing() == ["folder (somewhere 1.0)"]

    mirror.before = lambda _: None
    again = driven(mirror)
    again.drain()
    assert f"{CHECKPOINT}.json" in mirror.files


@pytest.mark.parametrize("receipt", [None, "s3://there", {"size": 1}, {"sha256": "0" * 64}], ids=str)
def test_what_is_no_proof_of_arrival_is_none(run: Run, mirror: Folder, driven: Drive, receipt: object) -> None:
    def after(artifact: Artifact, usual: UploadReceipt) -> Any:
        if artifact.kind != "commit":
            return usual
        return attrs.evolve(usual, **receipt) if isinstance(receipt, dict) else receipt

    mirror.after = after
    uploads = driven(mirror, required=True)
    uploads.save(100)
    until(lambda: uploads.of(events.UploadFailed, CHECKPOINT))
    assert uploads.uploads.missing() == ["folder (somewhere 1.0)"]


def test_a_response_that_is_lost_after_the_write_makes_no_second_object(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    lost: set[str] = set()

    def after(artifact: Artifact, receipt: UploadReceipt) -> UploadReceipt:
        if artifact.relative_path not in lost:
            lost.add(artifact.relative_path)
            raise TimeoutError("no response")
        return receipt

    mirror.after = after
    uploads = driven(mirror)
    uploads.save(100)
    uploads.drain()
    assert f"{CHECKPOINT}.json" in mirror.files
    assert set(mirror.writes.values()) == {1}
    backlog = uploads.uploads.pending().by_uploader["folder"]
    assert backlog.existed_files == backlog.uploaded_files


def test_a_call_that_hangs_is_told_and_made_again_in_another_thread(run: Run, mirror: Folder, driven: Drive) -> None:
    release, hung, ahead = threading.Event(), threading.Event(), [0.0]

    def before(artifact: Artifact) -> None:
        if artifact.relative_path.endswith("part-1.bin") and not hung.is_set():
            hung.set()
            release.wait()

    mirror.before = before
    uploads = driven(mirror, clock=lambda: time.monotonic() + ahead[0])
    uploads.save(100)
    try:
        # Two documents, the log and two files of the checkpoint; its record waits for the one that hangs.
        until(lambda: uploads.uploads.pending().by_uploader["folder"].uploaded_files == 5)
        ahead[0] = QUICK.hang_seconds + 1
        uploads.drain()
        (told,) = uploads.of(events.UploadFailed)
        assert "has not returned from upload_artifact for 120 s" in told.message
        assert told.will_retry
        assert newest(mirror.root / "checkpoints").found is not None
    finally:
        release.set()
    until(lambda: mirror.at_once == 0)
    uploads.finish()
    assert mirror.writes[f"{CHECKPOINT}/part-1.bin"] == 1


def test_no_more_than_four_threads_are_lost(run: Run, mirror: Folder, driven: Drive) -> None:
    release = threading.Event()
    mirror.before = lambda artifact: artifact.kind == "checkpoint" and release.wait()
    uploads = driven(mirror, limits=attrs.evolve(QUICK, hang_seconds=0.05))
    uploads.save(100, files=30)
    try:
        until(lambda: mirror.at_once == 8)
        until(
            lambda: len(uploads.of(events.UploadFailed)) > 1
        )  # of the lost, once; and one of those that are waited for
        assert mirror.most_at_once == 8
    finally:
        release.set()
    uploads.drain()
    assert newest(mirror.root / "checkpoints").found is not None


def test_above_the_limit_of_the_spool_the_oldest_is_given_up_and_the_newest_goes_first(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    outage = Outage(mirror, only="checkpoints/")
    record = run.commit(100)
    uploads = driven(mirror, spool_bytes=2 * record.size + 2000)
    uploads.uploads.on_event(run.saved(100))
    until(lambda: uploads.of(events.UploadFailed))
    for step in (200, 300, 400, 500):
        uploads.save(step)
        run.retire(step - 100)
    until(lambda: len([one for one in uploads.of(events.UploadFailed) if not one.will_retry]) == 2)
    given_up = [one for one in uploads.of(events.UploadFailed) if not one.will_retry]
    assert [one.path for one in given_up] == [CHECKPOINT, "checkpoints/step-000200"]
    assert "spool_bytes" in given_up[0].message
    outage.is_over = True
    uploads.drain()
    there = {path for path in mirror.files if path.count("/") == 1 and path.startswith("checkpoints/")}
    assert there == {f"checkpoints/step-000{step}.json" for step in (300, 400, 500)}


@pytest.mark.parametrize("clock", ["fine", "coarse"])
def test_a_checkpoint_that_has_waited_too_long_is_given_up_unless_it_is_the_newest(
    run: Run, mirror: Folder, driven: Drive, clock: str
) -> None:
    """Also if both have one time: the clock of a file system may tick every 10 ms only."""
    outage = Outage(mirror, only="checkpoints/")
    uploads = driven(mirror, spool_seconds=0.01)
    for step in (100, 200) if clock == "fine" else (200, 100):
        run.commit(step)
        if clock == "coarse":
            os.utime(run.directory.checkpoints / f"step-{step:06d}.json", (1e9, 1e9))
        uploads.uploads.on_event(run.saved(step))
    until(lambda: [one for one in uploads.of(events.UploadFailed, CHECKPOINT) if not one.will_retry])
    outage.is_over = True
    uploads.drain()
    assert "checkpoints/step-000200.json" in mirror.files
    assert f"{CHECKPOINT}.json" not in mirror.files


def test_an_uploader_that_cannot_be_opened_is_opened_again(run: Run, mirror: Folder, driven: Drive) -> None:
    tries: list[int] = []

    def on_open() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionRefusedError("nobody there")

    mirror.on_open = on_open
    uploads = driven(mirror)
    uploads.drain()
    (told,) = uploads.of(events.UploadFailed)
    assert (told.path, told.will_retry) == ("", True)
    assert told.message == "open: ConnectionRefusedError: nobody there"
    assert "config/run.json" in mirror.files


def test_an_uploader_that_says_it_never_will_open_is_left_alone(run: Run, mirror: Folder, driven: Drive) -> None:
    def on_open() -> None:
        raise FatalError("the bucket does not exist")

    mirror.on_open = on_open
    uploads = driven(mirror, required=True)
    uploads.save(100)
    uploads.finish()
    (told,) = uploads.of(events.UploadFailed)
    assert not told.will_retry
    assert "the bucket does not exist" in told.message
    assert uploads.uploads.missing() == ["folder (somewhere 1.0)"]
    assert mirror.calls == {}


def test_one_uploader_in_an_outage_is_no_matter_to_another(
    run: Run, mirror: Folder, tmp_path: Path, driven: Drive
) -> None:
    broken = Folder(tmp_path / "broken")
    Outage(broken)
    uploads = driven(mirror, broken, required=True)
    uploads.save(100)
    until(lambda: uploads.of(events.ArtifactUploaded, CHECKPOINT))
    until(lambda: uploads.uploads.missing() == ["folder.2 (somewhere 1.0)"])


def test_abandoned_uploads_are_told_so_and_leave_everything_to_the_next(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    gate = Gate(mirror, CHECKPOINT)
    gate.close()
    uploads = driven(mirror)
    uploads.save(100)
    gate.wait()
    until(lambda: uploads.uploads.pending().files == 4)  # the other uploads are done
    assert not mirror.opened[0].is_canceled()
    uploads.uploads.abandon()
    assert mirror.opened[0].is_canceled()
    assert uploads.uploads.is_drained()
    gate.open()
    until(lambda: mirror.closed == 1)
    assert f"{CHECKPOINT}.json" not in mirror.files

    again = driven(mirror)
    again.drain()
    assert f"{CHECKPOINT}.json" in mirror.files
    assert set(mirror.writes.values()) == {1}
