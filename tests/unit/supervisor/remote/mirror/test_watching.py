"""What is brought of a run that goes on elsewhere: only ever more of it, and nothing where nothing has changed."""

import fcntl
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import fsspec
import orjson
import pytest

from hostcore.events.reader import GrowingLog
from hostcore.job.load import load_job
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore.supervisor.remote import watching
from hostcore.supervisor.remote.watching import add_events, refresh, refresh_ended
from hostcore_builtin_plugins.stores.location import Location

JOB = {"trainer": "some:Trainer", "run_id": "a", "max_steps": 10, "checkpoint_base_uri": "memory://watched"}


def _line(seq: int, text: str = "") -> bytes:
    return b'{"schema":"hostcore.event/1","seq":%d,"text":"%s"}\n' % (seq, text.encode())


def _result(attempt: int, status: str = "succeeded") -> bytes:
    result = RunResult(
        run_id="a", status=status, exit_code=0, attempt=attempt, step=3, epoch=0, started_ms=1, ended_ms=2
    )
    return orjson.dumps(result.as_dict())


@attrs.frozen
class Mirror:
    """What lies in the store, by name; and what was asked of it."""

    filesystem: Any
    folder: str = "/watched/a/framework=some-Trainer"

    def put(self, name: str, content: bytes) -> None:
        self.filesystem.pipe_file(f"{self.folder}/{name}", content)

    def place(self, name: str) -> Location:
        return Location.of(f"memory:/{self.folder}/{name}")


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    filesystem = fsspec.filesystem("memory")
    yield Mirror(filesystem)
    filesystem.rm("/watched", recursive=True)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "runs" / "a")
    found.make()
    RunRecord(job={**JOB, "launcher": "far"}, job_dir="/here", submitted_ms=5).write(found.record)
    return found


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``limit(_PIECE=64)``: take at most so many bytes at once, or of one thing."""

    def make(**most: int) -> None:
        for name, count in most.items():
            monkeypatch.setattr(watching, name, count)

    return make


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the store whose content was read."""
    read, names = Location.read, []

    def noted(self: Location, *args: Any) -> bytes | None:
        names.append(self.path.rpartition("framework=some-Trainer/")[2])
        return read(self, *args)

    monkeypatch.setattr(Location, "read", noted)
    return names


class TestRefresh:
    def test_brings_attempts_events_the_end_and_what_it_ran_with(
        self, mirror: Mirror, directory: RunDirectory, reads: list[str]
    ) -> None:
        told = {"plugins": [{"name": "x"}], "used": [{"attempt": 1, "plugins": [], "data": "ab"}], "total_steps": 10}
        ran = RunRecord(job=JOB, job_dir="/there", environment={"python": "3"}, **told)
        mirror.put("config/run.json", orjson.dumps({"schema": "hostcore.run/1", **attrs.asdict(ran)}))
        mirror.put("attempts/1.json", b'{"attempt": 1}')
        mirror.put("logs/events.jsonl", _line(1) + _line(2))
        mirror.put("result.json", _result(1))

        refresh(load_job(JOB), directory)

        assert directory.events.read_bytes() == _line(1) + _line(2)
        assert RunResult.read(directory.result).attempt == 1
        assert (directory.attempts / "1.json").read_bytes() == b'{"attempt": 1}'
        record = RunRecord.read(directory.record)
        assert {"plugins": record.plugins, "used": record.used, "total_steps": record.total_steps} == told
        assert (record.job["launcher"], record.job_dir, record.submitted_ms) == ("far", "/here", 5)

        reads.clear()
        refresh(load_job(JOB), directory, at_once=True)
        assert reads == [], "nothing has changed"
        mirror.put("logs/events.jsonl", _line(1) + _line(2) + _line(3))
        refresh(load_job(JOB), directory)
        assert directory.events.read_bytes() == _line(1) + _line(2), "it is too soon"
        refresh(load_job(JOB), directory, at_once=True)
        assert directory.events.read_bytes() == _line(1) + _line(2) + _line(3)
        assert set(reads) == {"logs/events.jsonl"}

    def test_never_goes_back(self, mirror: Mirror, directory: RunDirectory) -> None:
        directory.result.write_bytes(_result(2, "failed"))
        directory.events.write_bytes(_line(1) + _line(2) + _line(3))
        mirror.put("result.json", _result(1))
        mirror.put("logs/events.jsonl", _line(1) + _line(2))

        refresh(load_job(JOB), directory)

        assert RunResult.read(directory.result).status == "failed"
        assert directory.events.read_bytes() == _line(1) + _line(2) + _line(3)

    def test_of_a_store_that_does_not_answer_changes_nothing(
        self, mirror: Mirror, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        mirror.put("result.json", _result(1))

        def fail(*_: Any, **__: Any) -> None:
            raise ConnectionError("no answer")

        monkeypatch.setattr(type(mirror.filesystem), "info", fail)
        assert not refresh(load_job(JOB), directory, at_once=True)
        assert not directory.result.exists()
        assert "the mirror of a cannot be brought here: " in caplog.text
        assert "no answer" in caplog.text

        monkeypatch.undo()
        assert refresh(load_job(JOB), directory, at_once=True)
        assert directory.result.exists()

    def test_says_whether_everything_is_here(
        self, mirror: Mirror, directory: RunDirectory, limit: Callable[..., None]
    ) -> None:
        limit(_PIECE=64, _MOST=64)
        content = b"".join(_line(seq) for seq in range(1, 9))  # two at once
        mirror.put("logs/events.jsonl", content)
        mirror.put("result.json", _result(1))
        with (directory.path / ".mirror.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not refresh(load_job(JOB), directory, at_once=True)
        assert not directory.result.exists(), "somebody else does it"

        complete = []
        for _ in range(4):
            complete.append(refresh(load_job(JOB), directory, at_once=True))
            assert directory.result.exists() == complete[-1], "the end comes after the last event"
        assert complete == [False, False, False, True]
        assert directory.events.read_bytes() == content
        assert not refresh(load_job(JOB), directory), "it is too soon to know"

        directory.events.unlink()
        (directory.path / ".mirror.json").unlink()
        assert refresh_ended(load_job(JOB), directory)
        assert directory.events.read_bytes() == content

    def test_brings_no_end_that_was_written_while_its_events_were_brought(
        self, mirror: Mirror, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirror.put("logs/events.jsonl", _line(1))
        mirror.put("result.json", _result(1, "failed"))
        add = watching.add_events

        def go_on(*arguments: Any) -> bool:
            done = add(*arguments)
            mirror.put("logs/events.jsonl", _line(1) + _line(2))
            mirror.put("result.json", _result(2))
            return done

        monkeypatch.setattr(watching, "add_events", go_on)
        assert not refresh(load_job(JOB), directory, at_once=True)
        assert not directory.result.exists()
        monkeypatch.setattr(watching, "add_events", add)
        assert refresh(load_job(JOB), directory, at_once=True)
        assert (RunResult.read(directory.result).attempt, directory.events.read_bytes()) == (2, _line(1) + _line(2))

    @pytest.mark.parametrize("most", ["_LARGEST", "_LONGEST"])
    def test_of_a_run_that_has_ended_does_not_wait_for_events_that_are_not_copied(
        self, mirror: Mirror, directory: RunDirectory, limit: Callable[..., None], most: str
    ) -> None:
        limit(_PIECE=64, _MOST=64)
        limit(**{most: 200})
        mirror.put("logs/events.jsonl", b"".join(_line(seq, "x" * 50) for seq in range(1, 9)) + _line(9, "y" * 999))
        mirror.put("result.json", _result(1))
        assert not refresh_ended(load_job(JOB), directory)
        assert directory.events.exists()
        assert directory.result.exists()

    def test_takes_no_document_of_any_size_and_no_log_that_fills_the_disk(
        self, mirror: Mirror, directory: RunDirectory, caplog: pytest.LogCaptureFixture, limit: Callable[..., None]
    ) -> None:
        limit(_MOST_BYTES=400, _LARGEST=100)
        directory.events.write_bytes(_line(1) + _line(2, "x" * 60))
        before = directory.events.read_bytes()
        mirror.put("logs/events.jsonl", before + _line(3))
        mirror.put("result.json", _result(1) + b" " * 400)
        assert not refresh(load_job(JOB), directory, at_once=True)
        assert not directory.result.exists()
        assert "longer than 400 bytes" in caplog.text
        mirror.put("result.json", _result(1))
        assert not refresh(load_job(JOB), directory, at_once=True)
        assert directory.events.read_bytes() == before
        assert directory.result.exists(), "how it ended is another file"


class TestTheCopyOfALog:
    def test_is_a_prefix_of_its_original_whatever_happens(
        self, mirror: Mirror, tmp_path: Path, limit: Callable[..., None], seed: int
    ) -> None:
        chance = random.Random(seed)
        limit(_PIECE=256, _MOST=700, _BLOCK=48)
        copy, content, read = tmp_path / "logs" / "events.jsonl", b"", b""
        reader = GrowingLog(copy)
        for seq in range(1, 200):
            content += _line(seq, "z" * (1000 if seq == 100 else chance.randrange(150)))  # longer than a piece
            if chance.random() < 0.3:
                shown = content[: chance.randrange(len(content) + 1)]  # an older version, and a torn one
                mirror.put("log", shown)
                add_events(mirror.place("log"), len(shown), copy)
                if chance.random() < 0.3:
                    with copy.open("ab") as file:  # a process that was killed while it wrote
                        file.write(b'{"schema":"hostcore.ev')
                read += b"".join(reader.read())
        mirror.put("log", content)
        while not add_events(mirror.place("log"), len(content), copy):
            read += b"".join(reader.read())
        assert read + b"".join(reader.read()) == content == copy.read_bytes()

    def test_takes_the_higher_numbers_alone_of_another_course_of_events(self, mirror: Mirror, tmp_path: Path) -> None:
        copy = tmp_path / "events.jsonl"
        copy.write_bytes(_line(1) + _line(2, "here") + _line(3, "here"))
        other = _line(1) + _line(2, "there") + _line(3, "there") + _line(4, "there")
        mirror.put("log", other)

        assert add_events(mirror.place("log"), len(other), copy)

        assert copy.read_bytes() == _line(1) + _line(2, "here") + _line(3, "here") + _line(4, "there")


def test_a_run_without_a_mirror_is_left_alone(directory: RunDirectory, reads: list[str]) -> None:
    refresh(load_job({key: value for key, value in JOB.items() if key != "checkpoint_base_uri"}), directory)
    assert reads == []
    assert {path.name for path in directory.path.iterdir()} == {"attempts", "checkpoints", "config", "logs", "samples"}
