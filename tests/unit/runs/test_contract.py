"""The file that a worker is started with, and the line to its supervisor."""

import socket
import threading
from pathlib import Path

import attrs
import pytest

from hostcore.runs.channel import Channel
from hostcore.runs.contract import InvalidContract, WorkerContract
from hostcore.runs.documents import CorruptDocument, read_document, write_document

CONTRACT = WorkerContract(
    trainer_plugin="mine",
    job_spec_path="/runs/a/config/run.json",
    checkpoints_dir="/runs/a/checkpoints",
    samples_dir="/runs/a/samples",
    events_path="/runs/a/logs/rank-0.attempt-3.jsonl",
    run_dir="/runs/a",
    attempt=3,
    attempts_dir="/runs/a/attempts",
    start_from="/runs/b/checkpoints/step-000003",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a good contract."""
    CONTRACT.write(tmp_path / "contract.json")
    return tmp_path / "contract.json"


class TestTheContract:
    def test_has_the_fields_of_version_1(self, path: Path) -> None:
        written = read_document(path)
        assert written["contract_version"] == "v1"
        assert written["arrow_ipc_path"] == ""
        assert set(written) >= {"trainer_plugin", "job_spec_path", "checkpoints_dir", "samples_dir", "events_path"}

    @pytest.mark.parametrize("version", ["v2", "v0", "", 1, None])
    def test_of_an_unknown_version_is_refused_whatever_else_it_says(self, path: Path, version: object) -> None:
        write_document(path, {"contract_version": version, "shape": "of another time"})
        with pytest.raises(InvalidContract, match="this worker follows 'v1'") as caught:
            WorkerContract.read(path)
        assert (caught.value.pointer, caught.value.file) == ("/contract_version", str(path))
        assert caught.value.hint

    def test_without_a_version_is_refused(self, path: Path) -> None:
        write_document(path, {})
        with pytest.raises(InvalidContract, match="contract_version is None"):
            WorkerContract.read(path)

    def test_of_an_older_hostcore_gets_the_defaults(self, path: Path) -> None:
        document = read_document(path)
        for later in ("attempt", "attempts_dir", "start_from", "arrow_ipc_path"):
            del document[later]
        write_document(path, document)
        assert WorkerContract.read(path) == attrs.evolve(CONTRACT, attempt=1, attempts_dir="", start_from="")

    def test_of_the_seven_fields_that_version_1_began_with_lies_around_its_events(self, path: Path) -> None:
        seven = [field.name for field in attrs.fields(WorkerContract)][:7]
        write_document(path, {name: value for name, value in read_document(path).items() if name in seven})
        read = WorkerContract.read(path)
        around = Path(CONTRACT.events_path).parent
        assert (read.run_dir, read.attempts_dir) == (str(around), str(around / "attempts"))

    def test_that_is_missing_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidContract, match="does not exist") as caught:
            WorkerContract.read(tmp_path / "none.json")
        assert caught.value.file == str(tmp_path / "none.json")

    def test_that_is_no_json_is_an_error(self, path: Path) -> None:
        path.write_text("{")
        with pytest.raises(CorruptDocument):
            WorkerContract.read(path)


class TestTheLine:
    def test_carries_messages_both_ways_in_order(self) -> None:
        left, right = Channel.pair()
        left.send("ready", {"a": 1})
        left.send("failed", ["b"])
        right.send("go", {})
        assert [right.receive(5), right.receive(5)] == [("ready", {"a": 1}), ("failed", ["b"])]
        assert left.receive(5) == ("go", {})

    def test_puts_messages_together_that_come_in_pieces(self) -> None:
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        theirs.sendall(b'{"re')
        with pytest.raises(TimeoutError):
            channel.receive(0.01)
        theirs.sendall(b'ady":1}\n{"x":2}\n')
        assert [channel.receive(5), channel.receive(5)] == [("ready", 1), ("x", 2)]

    def test_can_be_asked_without_waiting_and_is_still_there_to_speak(self) -> None:
        left, right = Channel.pair()
        with pytest.raises(TimeoutError):
            left.receive(0)
        left.send("go", {})
        assert right.receive(0) == ("go", {})
        right.close()
        with pytest.raises(EOFError):
            left.receive(0)

    def test_carries_messages_larger_than_its_buffers(self) -> None:
        left, right = Channel.pair()
        sender = threading.Thread(target=left.send, args=("invalid", "x" * 3_000_000))
        sender.start()
        kind, content = right.receive(30)
        sender.join()
        assert (kind, len(content)) == ("invalid", 3_000_000)

    def test_that_was_closed_ends_after_what_was_said(self) -> None:
        left, right = Channel.pair()
        left.send("ready", {})
        left.close()
        assert right.receive(5) == ("ready", {})
        with pytest.raises(EOFError):
            right.receive(5)

    def test_that_was_hung_up_ends_for_the_other_side_which_can_still_be_heard(self) -> None:
        left, right = Channel.pair()
        left.hang_up()
        with pytest.raises(EOFError):
            right.receive(5)
        right.send("failed", {})
        assert left.receive(5) == ("failed", {})
        left.send("stop", {})  # nobody hears it
        right.close()
        left.hang_up()

    def test_to_nobody_takes_messages_without_an_error(self) -> None:
        left, right = Channel.pair()
        right.close()
        left.send("stop", {})
        with pytest.raises(EOFError):
            left.receive(5)
