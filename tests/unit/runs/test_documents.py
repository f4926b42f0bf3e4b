"""Documents, attempts, records and results: there whole, or not at all."""

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest

from hostcore.runs import documents
from hostcore.runs.attempts import claim_attempt, newest_attempt
from hostcore.runs.documents import (
    CorruptDocument,
    UnreadableDocument,
    read_document,
    remove_torn,
    write_document,
)
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.result import RunResult


class TestADocument:
    def test_replaces_the_one_before_and_leaves_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        with pytest.raises(FileNotFoundError):
            read_document(path)
        write_document(path, {"version": 1})
        write_document(path, {"b": [1, None, "ü"]})
        with pytest.raises(TypeError):
            write_document(path, {"version": object()})
        assert read_document(path) == {"b": [1, None, "ü"]}
        assert list(tmp_path.iterdir()) == [path]

    def test_that_does_not_fit_on_the_disk_leaves_the_old_one_alone(self, tmp_path: Path) -> None:
        path, limits = tmp_path / "a.json", resource.getrlimit(resource.RLIMIT_FSIZE)
        write_document(path, {"version": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                write_document(path, {"version": 2, "much": "x" * 1000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert read_document(path) == {"version": 1}
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
    def test_that_is_no_json_object_is_an_error_that_names_the_file(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(CorruptDocument, match="not a JSON") as caught:
            read_document(tmp_path / "a.json")
        assert caught.value.file == str(tmp_path / "a.json")


class TestAttempts:
    def test_are_claimed_once_and_counted(self, tmp_path: Path) -> None:
        me = ProcessIdentity.current()
        for name in ("notes.json", "7.txt", "²", "².json"):
            (tmp_path / name).touch()
        assert newest_attempt(tmp_path) == newest_attempt(tmp_path / "none") == 0
        for attempt in (9, 10):  # not sorted as text
            claim_attempt(tmp_path, attempt, process=me, started_ms=5)
        assert newest_attempt(tmp_path) == 10
        with pytest.raises(FileExistsError):
            claim_attempt(tmp_path, 9, process=me, started_ms=99)
        assert read_document(tmp_path / "9.json") == {"attempt": 9, "process": attrs.asdict(me), "started_ms": 5}

    def test_are_claimed_by_one_of_many_processes_at_once(self, tmp_path: Path) -> None:
        script = """
            import sys
            from pathlib import Path
            from hostcore.runs.attempts import claim_attempt
            from hostcore.runs.lease import ProcessIdentity

            me = ProcessIdentity.current()
            sys.stdin.readline()
            for attempt in range(1, 201):
                try:
                    claim_attempt(Path(sys.argv[1]), attempt, process=me, started_ms=0)
                except FileExistsError:
                    continue
                print(attempt)
        """
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
        ]
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        claimed = [int(line) for process in processes for line in process.communicate()[0].split()]
        assert sorted(claimed) == list(range(1, 201))


class TestWhatLiesInPlaceOfADocument:
    """Whoever writes a run directory need not be trusted by whoever reads it."""

    def test_is_no_document_if_it_is_a_pipe_or_a_link(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.json")
        write_document(tmp_path / "secret.json", {})
        (tmp_path / "link.json").symlink_to(tmp_path / "secret.json")
        for name in ("pipe.json", "link.json"):
            with pytest.raises(FileNotFoundError):
                read_document(tmp_path / name)

    def test_is_told_if_it_is_a_folder_or_longer_than_any_document(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "folder.json").mkdir()
        with pytest.raises(UnreadableDocument, match="Is a directory"):
            read_document(tmp_path / "folder.json")
        monkeypatch.setattr(documents, "_MOST", 10)
        write_document(tmp_path / "long.json", {"key": "value"})
        with pytest.raises(CorruptDocument, match="longer than 10 bytes"):
            read_document(tmp_path / "long.json")
        with pytest.raises(CorruptDocument, match="longer than 10 bytes"):  # not because of its texts
            read_document(tmp_path / "long.json", cut_texts=True)


def test_a_result_that_an_older_version_has_written_too_long_is_read_with_its_texts_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"type": "ValueError", "message": "x" * 100_000, "traceback": "é" * 100_000, "plugin": "p", "rank": 0}
    content = {"run_id": "a", "status": "failed", "exit_code": 1, "attempt": 2, "step": 7, "epoch": 1}
    write_document(tmp_path / "result.json", {**content, "error": error, "started_ms": 1, "ended_ms": 2})
    monkeypatch.setattr(documents, "_MOST", 50_000)
    monkeypatch.setattr(documents, "_PIECE", 1001)
    result = RunResult.read(tmp_path / "result.json")
    assert result is not None
    assert (result.status, result.attempt, result.step, result.ended_ms) == ("failed", 2, 7, 2)
    assert result.error is not None
    assert (result.error.type, result.error.plugin, result.error.rank) == ("ValueError", "p", 0)
    assert "bytes left out …]" in result.error.message


def test_what_a_killed_writer_has_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    torn, being_written = tmp_path / f".run.json.{dead.pid}.tmp", tmp_path / f".lease.json.{os.getpid()}.tmp"
    for path in (torn, being_written, tmp_path / ".mine.tmp"):
        path.touch()
    remove_torn(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {being_written.name, ".mine.tmp"}
