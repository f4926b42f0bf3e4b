"""Retired checkpoints: removed when they have been uploaded, or beyond the limits, whatever is in the way meanwhile."""

import time
from pathlib import Path

import pytest
from uploading import Drive, Driven, Folder, Run, until

from hostcore.checkpoints.names import Claim
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore_hookspecs import events


def not_removed(uploads: Driven) -> list[events.Warning]:
    return [one for one in uploads.of(events.Warning) if one.code == "checkpoint.not_removed"]


@pytest.mark.parametrize("blocked", ["record", "mark"])
def test_a_removal_that_fails_is_reported_once_and_tried_again(
    run: Run, mirror: Folder, driven: Drive, blocked: str
) -> None:
    """Before anything is removed, and when the record and the folder are gone already."""
    asked: list[float] = []

    def clock() -> float:
        asked.append(time.monotonic())
        return asked[-1]

    uploads = driven(mirror, clock=clock)
    for step in (100, 200):
        uploads.save(step)
    uploads.drain()
    claim = Claim(run.directory.checkpoints, 100, 1)
    obstacle: Path = claim.hidden_record("pruned") if blocked == "record" else claim.retired
    obstacle.mkdir()  # a file cannot be moved over it, nor be removed as a file
    if blocked == "record":
        run.retire(100)
    until(lambda: not_removed(uploads))
    assert claim.record.exists() == (blocked == "record")
    before = len(asked)
    until(lambda: len(asked) > before + 50)  # of which a few tries
    assert len(not_removed(uploads)) == 1
    obstacle.rmdir()
    until(lambda: run.checkpoints == ["step-000200", "step-000200.json"])


def test_the_limit_holds_while_another_process_has_the_ledger(run: Run, mirror: Folder, driven: Drive) -> None:
    ledger = Ledger(run.directory.uploads, attempt=1)
    for step in (100, 200, 300):
        run.commit(step)
    run.retire(100)
    run.retire(200)
    size = sum(path.stat().st_size for path in run.directory.checkpoints.glob("step-000100*/*"))
    uploads = driven(mirror, spool_bytes=size + 1000)  # with its record: room for one
    until(lambda: "step-000100.json" not in run.checkpoints)
    assert run.checkpoints[-4:] == ["step-000200", "step-000200.json", "step-000300", "step-000300.json"]
    (lost,) = uploads.of(events.UploadFailed)
    assert (lost.path, lost.will_retry) == ("checkpoints/step-000100", False)
    ledger.close()
    uploads.finish()
    assert {"checkpoints/step-000200.json", "checkpoints/step-000300.json"} <= mirror.files
    assert run.checkpoints == ["step-000300", "step-000300.json"]


def test_without_a_limit_nothing_is_removed_while_another_process_has_the_ledger(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    ledger = Ledger(run.directory.uploads, attempt=1)
    for step in (100, 200):
        run.commit(step)
    run.retire(100)
    uploads = driven(mirror)
    until(lambda: uploads.of(events.Warning))
    assert uploads.of(events.Warning)[0].code == "uploads.busy"
    assert not uploads.uploads.is_drained()
    assert "step-000100.json" in run.checkpoints
    ledger.close()
    uploads.drain()
    until(lambda: run.checkpoints == ["step-000200", "step-000200.json"])
    assert "checkpoints/step-000100.json" in mirror.files
