"""Everything arrives, whole, once, in the right order, and leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from uploading import QUICK, Drive, Folder, Gate, Run, until

from hostcore.checkpoints.find import newest
from hostcore.supervisor.delivery import units
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore_hookspecs import events


def test_a_run_is_mirrored_with_data_before_its_record_and_the_result_last(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    uploads = driven(mirror)
    for step in (100, 200):
        uploads.save(step)
    uploads.uploads.on_event(run.sample(200))
    uploads.drain()
    run.end()
    uploads.finish()

    parts = [f"checkpoints/step-{step:06d}/part-{number}.bin" for step in (100, 200) for number in range(3)]
    documents = ["attempts/1.json", "config/run.json", "logs/events.jsonl", "result.json"]
    records = ["checkpoints/step-000100.json", "checkpoints/step-000200.json"]
    assert mirror.files == {*parts, *records, *documents, "samples/step-000200/0/sample.txt"}
    for relative in mirror.files:
        assert (mirror.root / relative).read_bytes() == (run.directory.path / relative).read_bytes()
    for record in records:
        own = [mirror.order.index(path) for path in parts if path.startswith(record.removesuffix(".json"))]
        assert max(own) < mirror.order.index(record)
    assert mirror.order[:2] == ["attempts/1.json", "config/run.json"]
    assert mirror.order[-1] == "result.json"
    assert set(mirror.writes.values()) == {1}
    assert run.spooled == []
    assert (len(mirror.opened), mirror.closed) == (1, 1)
    assert not newest(mirror.root / "checkpoints").skipped

    units = [
        *(one for one in documents if one != "logs/events.jsonl"),
        *(record.removesuffix(".json") for record in records),
        "samples/step-000200/0",
    ]
    told = uploads.of(events.ArtifactUploaded)
    assert sorted(one.path for one in told) == sorted(units), "one event for each"
    (checkpoint,) = [one for one in told if one.path == "checkpoints/step-000100"]
    assert checkpoint.uri == (mirror.root / "checkpoints" / "step-000100.json").as_uri()
    assert checkpoint.uploader == "folder (somewhere 1.0)"

    arrivals = {line["path"]: line for line in map(json.loads, run.directory.uploads.read_bytes().splitlines())}
    record = arrivals["checkpoints/step-000100.json"]
    content = (run.directory.checkpoints / "step-000100.json").read_bytes()
    assert (record["uploader"], record["size"], record["step"]) == ("folder", len(content), 100)
    assert record["uri"].endswith("/mirror/checkpoints/step-000100.json")


def test_nothing_goes_before_the_claim_of_the_attempt_and_the_result_goes_last(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    claim = Gate(mirror, "attempts/")
    claim.close()
    uploads = driven(mirror)
    uploads.save(100)
    claim.wait()
    uploads.listen_for_a_while()
    assert mirror.begun == ["attempts/1.json"], "not even the record of the run"
    data = Gate(mirror, "checkpoints/")
    data.close()
    claim.open()
    data.wait()
    run.end()
    uploads.uploads.finish(final=False)
    uploads.uploads.finish(final=True)
    uploads.listen_for_a_while()
    assert "result.json" not in mirror.begun
    data.open()
    uploads.drain()
    assert mirror.order[-1] == "result.json"


def test_a_retired_checkpoint_stays_until_it_has_arrived_everywhere(
    run: Run, mirror: Folder, tmp_path: Path, driven: Drive
) -> None:
    slow = Folder(tmp_path / "slow")
    gate = Gate(slow, "checkpoints/")
    uploads = driven(mirror, slow)
    uploads.save(200)
    uploads.drain()
    gate.close()
    for step in (100, 300):
        uploads.save(step)
    run.retire(100)
    run.retire(200)
    until(lambda: "step-000200.json" not in run.checkpoints)
    assert "step-000100.json" in run.checkpoints
    gate.open()
    uploads.finish()
    assert run.checkpoints == ["step-000300", "step-000300.json"]
    for folder in (mirror, slow):
        assert {f"checkpoints/step-000{step}.json" for step in (100, 200, 300)} <= folder.files
        assert not newest(folder.root / "checkpoints").skipped


def test_the_mark_of_an_older_version_of_a_step_does_not_remove_the_newer(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    run.commit(100)
    run.retire(100)
    run.attempt = 2
    (run.directory.attempts / "2.json").write_text('{"attempt": 2}')
    run.commit(100, content="the second")
    uploads = driven(mirror)
    uploads.finish()
    assert {"step-000100", "step-000100.json"} <= set(run.checkpoints)


def test_a_checkpoint_that_was_removed_before_it_could_be_copied_is_told_and_not_missed(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    uploads = driven(mirror, required=True)
    run.commit(100)
    event = run.saved(100)
    run.remove(100)
    uploads.uploads.on_event(event)
    uploads.drain()
    (told,) = uploads.of(events.Warning)
    assert told.code == "uploads.missed"
    assert told.message.startswith("checkpoints/step-000100 was removed before it could be copied")
    until(lambda: uploads.uploads.missing() == [])  # a copy of the log may be on its way


def test_a_checkpoint_that_is_removed_while_it_is_copied_is_given_up(run: Run, mirror: Folder, driven: Drive) -> None:
    gate = Gate(mirror, "checkpoints/step-000200")
    gate.close()
    uploads = driven(mirror)
    uploads.save(200)
    gate.wait()
    run.remove(200)
    gate.open()
    uploads.drain()
    (lost,) = uploads.of(events.UploadFailed, "checkpoints/step-000200")
    assert not lost.will_retry
    assert "removed or replaced" in lost.message
    assert "checkpoints/step-000200.json" not in mirror.files


def test_a_step_that_is_written_again_ends_up_in_its_newest_version(run: Run, mirror: Folder, driven: Drive) -> None:
    gate = Gate(mirror, "checkpoints/step-000100/part-1")
    gate.close()
    uploads = driven(mirror)
    uploads.save(100, content="the first")
    gate.wait()
    uploads.save(100, content="the second")
    until(lambda: mirror.calls["checkpoints/step-000100/part-0.bin"] == 2)
    until(lambda: "checkpoints/step-000100/part-2.bin" in mirror.begun)
    assert mirror.calls["checkpoints/step-000100/part-1.bin"] == 1, "never two at once to one name"
    gate.open()
    uploads.drain()
    search = newest(mirror.root / "checkpoints")
    assert search.found is not None, search.skipped
    assert "the second" in (search.found.folder / "part-1.bin").read_text()
    assert run.spooled == []


def test_what_an_earlier_attempt_has_left_is_taken_up(run: Run, mirror: Folder, driven: Drive) -> None:
    run.commit(100)
    run.commit(200)
    run.retire(100)
    (run.directory.spool / "config-run.json.0-dead").mkdir(parents=True)  # of a process that was killed

    run.attempt = 2
    (run.directory.attempts / "2.json").write_text('{"attempt": 2}')
    uploads = driven(mirror, limits=attrs.evolve(QUICK, at_once=1))
    uploads.finish()
    assert {"checkpoints/step-000100.json", "checkpoints/step-000200.json", "attempts/2.json"} <= mirror.files
    assert next(path for path in mirror.begun if "step-" in path).startswith("checkpoints/step-000100/")
    assert run.spooled == []
    assert run.checkpoints == ["step-000200", "step-000200.json"]


def test_what_an_earlier_version_kept_for_its_upload_stays_and_is_told(run: Run, mirror: Folder, driven: Drive) -> None:
    (run.directory.spool / "step-000050.1f2e3d4c5b6a" / "checkpoints").mkdir(parents=True)
    uploads = driven(mirror)
    uploads.finish()
    assert run.spooled == ["step-000050.1f2e3d4c5b6a"]
    (told,) = [one for one in uploads.of(events.Warning) if one.code == "spool.earlier_version"]
    assert "step-000050" in told.message


def test_an_event_of_an_earlier_attempt_that_comes_late_is_no_loss(run: Run, mirror: Folder, driven: Drive) -> None:
    run.attempt = 2
    uploads = driven(mirror)
    uploads.uploads.on_event(run.saved(100, attempt=1))
    uploads.drain()
    assert uploads.of(events.UploadFailed) == []


def test_at_most_four_uploads_are_under_way_at_once(run: Run, mirror: Folder, driven: Drive) -> None:
    gate = Gate(mirror, "checkpoints/step-000100/")
    gate.close()
    uploads = driven(mirror)
    uploads.save(100, files=20)
    until(lambda: mirror.at_once == 4)
    gate.open()
    uploads.drain()
    assert mirror.most_at_once == 4


def test_a_copy_of_the_log_as_it_was_comes_before_the_record(run: Run, mirror: Folder, driven: Drive) -> None:
    uploads = driven(mirror)
    run.directory.events.write_bytes(b'{"seq":1}\n{"seq":2}\n{"torn')
    uploads.save(100)
    uploads.drain()
    assert mirror.order.index("logs/events.jsonl") < mirror.order.index("checkpoints/step-000100.json")
    assert (mirror.root / "logs/events.jsonl").read_bytes() == b'{"seq":1}\n{"seq":2}\n'
    uploads.save(200)
    run.directory.events.write_bytes(b'{"seq":1}\n{"seq":2}\n{"seq":3}\n')
    uploads.drain()
    assert mirror.calls["logs/events.jsonl"] == 1, "the next copy is not due"
    uploads.finish()
    assert (mirror.root / "logs/events.jsonl").read_bytes() == b'{"seq":1}\n{"seq":2}\n{"seq":3}\n'


def test_the_log_alone_is_copied_now_and_then_while_it_grows(run: Run, mirror: Folder, driven: Drive) -> None:
    driven(mirror, limits=attrs.evolve(QUICK, live_seconds=0.0, tick_seconds=0.01))
    run.directory.events.write_bytes(b'{"seq":1}\n{"seq":2}\n{"torn')
    (run.directory.logs / "rank-0.attempt-1.log").write_bytes(b"said\n")
    log = mirror.root / "logs/events.jsonl"
    until(lambda: log.exists() and log.read_bytes() == b'{"seq":1}\n{"seq":2}\n')
    run.directory.events.write_bytes(b'{"seq":1}\n{"seq":2}\n{"seq":3}\n')
    until(lambda: log.read_bytes() == b'{"seq":1}\n{"seq":2}\n{"seq":3}\n')
    assert "logs/rank-0.attempt-1.log" not in mirror.files


def test_a_long_log_is_copied_less_often() -> None:
    limits = UploadLimits()
    assert limits.live_of(1000) == limits.live_seconds
    assert limits.live_of(1 << 30) > 100 * limits.live_seconds


def test_checkpoints_elsewhere_have_the_same_place_in_the_mirror(
    run: Run, mirror: Folder, tmp_path: Path, driven: Drive
) -> None:
    run.commit(100)
    run.directory.checkpoints.rename(tmp_path / "outputs")
    uploads = driven(mirror, checkpoints_dir=tmp_path / "outputs")
    payload = events.CheckpointSaved(path="outputs/step-000100", bytes=0, final=False)
    uploads.uploads.on_event(run.event(payload, 100))
    uploads.drain()
    assert "checkpoints/step-000100.json" in mirror.files
    assert [one.path for one in uploads.of(events.ArtifactUploaded)][-1] == "checkpoints/step-000100"


def test_a_file_that_cannot_be_read_does_not_keep_the_others_and_is_missed(
    run: Run, mirror: Folder, driven: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.directory.logs / "a-note.txt").write_text("mine")
    whole = units.document_unit

    def document_unit(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "a-note.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, *arguments, **options)

    monkeypatch.setattr(units, "document_unit", document_unit)
    uploads = driven(mirror, required=True)
    run.end()
    uploads.finish()
    assert {"logs/events.jsonl", "result.json"} <= mirror.files
    assert uploads.uploads.missing() == ["folder (somewhere 1.0)"]
    (told,) = uploads.of(events.Warning)
    assert told.code == "uploads.trouble"
    assert "a-note.txt" in told.message


def test_retired_checkpoints_do_not_fill_the_disk_once_the_ledger_cannot_be_written(
    run: Run, mirror: Folder, driven: Drive
) -> None:
    run.directory.uploads.mkdir()
    uploads = driven(mirror, spool_bytes=1)
    until(lambda: bool(uploads.of(events.UploadFailed)))
    for step in (100, 200):
        uploads.save(step)
    run.retire(100)
    until(lambda: run.checkpoints == ["step-000200", "step-000200.json"])
