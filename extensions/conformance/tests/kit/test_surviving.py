"""The machinery of the checks that stop, kill and resume: processes of their own, excerpts of data, states compared."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from waiting import wait_until

from hostcore_conformance.checks.trainer import memory
from hostcore_conformance.excerpt import Beginning, shortened
from hostcore_conformance.process.fork_server import ForkServer, Imported, _Link
from hostcore_hookspecs import Shard


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    folder = tmp_path_factory.mktemp("fork_server")
    (folder / "grown.py").write_text(CHILDREN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        made = ForkServer()
        yield made
        made.close()


CHILDREN = """
import os, signal, subprocess, sys, time

state = {"calls": 0}


def told(**arguments):
    state["calls"] += 1
    return {"arguments": arguments, "calls": state["calls"], "torch": "torch" in sys.modules, "pid": os.getpid()}


def loaded():
    return list(sys.modules)


def surroundings(name):
    print("what it prints")
    return {"variable": os.environ.get(name), "folder": os.getcwd(), "hash": hash("a string")}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise ValueError("a mistake")


def stay(file):
    with open(file, "w") as out:
        out.write(str(os.getpid()))
    time.sleep(600)


def hang(file):
    with open(file, "w") as out:
        out.write(str(subprocess.Popen(["sleep", "600"]).pid))
    time.sleep(600)
"""


def call(fork_server: ForkServer, function: str, folder: Path, **arguments: Any) -> Any:
    folder.mkdir()
    options = {name: arguments.pop(name) for name in ("environment", "fresh", "imported") if name in arguments}
    limit = arguments.pop("timeout_seconds", 300)
    return fork_server.call(f"grown:{function}", arguments, folder=folder, timeout_seconds=limit, **options)


def test_a_child_returns_what_the_function_does_and_shares_nothing_with_the_next(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    first = call(fork_server, "told", tmp_path / "1", one=1, two=["b"])
    assert (first.code, first.timed_out, first.killed) == (0, False, False)
    assert first.value["arguments"] == {"one": 1, "two": ["b"]}
    assert first.value["torch"]
    others = [call(fork_server, "told", tmp_path / f"{n}", fresh=n > 2).value for n in (2, 3, 4)]
    assert [one["calls"] for one in (first.value, *others)] == [1] * 4
    assert len({os.getpid(), first.value["pid"], *(one["pid"] for one in others)}) == 5


def test_a_child_has_the_variables_and_the_folder_that_it_was_given_and_a_fresh_one_other_hashes(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    ended = call(fork_server, "surroundings", tmp_path / "1", name="GIVEN", environment={"GIVEN": "yes"})
    assert ended.value["variable"] == "yes"
    assert Path(ended.value["folder"]).parent == tmp_path / "1"
    next_one = call(fork_server, "surroundings", tmp_path / "2", name="GIVEN")
    fresh = call(fork_server, "surroundings", tmp_path / "fresh", name="X", fresh=True)
    assert ended.output == fresh.output == "what it prints\n"
    assert next_one.value["variable"] is None
    assert ended.value["hash"] == next_one.value["hash"] != fresh.value["hash"]


def test_a_child_finds_no_more_imported_than_was_asked_for(fork_server: ForkServer, tmp_path: Path) -> None:
    little = call(fork_server, "loaded", tmp_path / "little", imported=Imported.LITTLE).value
    torch = call(fork_server, "loaded", tmp_path / "torch", imported=Imported.TORCH).value
    assert "torch" not in little
    assert "torch" in torch
    for host in ("hostcore.plugins", "hostcore.supervisor", "hostcore.worker"):
        assert host not in {*little, *torch}


def test_a_child_does_not_outlive_a_server_that_is_killed(fork_server: ForkServer, tmp_path: Path) -> None:
    server, file = ForkServer(), tmp_path / "pid"
    options = {"file": str(file), "imported": Imported.LITTLE}
    with ThreadPoolExecutor() as threads:
        others = _children(os.getpid())
        staying = threads.submit(call, server, "stay", tmp_path / "1", **options)
        wait_until(lambda: file.exists() and file.read_text(), "the child to be running")
        (pid,) = _children(os.getpid()) - others
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="the server of processes has ended"):
            staying.result()
    wait_until(lambda: not _runs(int(file.read_text())), "the child to be gone")
    server.close()


def test_a_server_is_closed_in_the_middle_of_its_imports() -> None:
    server, others = ForkServer(), _children(os.getpid())
    server.prepare()
    (first,) = _children(os.getpid()) - others
    wait_until(lambda: _children(first), "the process that is to import torch to be there")
    (importing,) = _children(first)
    server.close()
    assert not _runs(first)
    wait_until(lambda: not _runs(importing), "that process to be gone, too")


def test_how_a_child_has_ended_is_told(fork_server: ForkServer, tmp_path: Path) -> None:
    killed = call(fork_server, "die", tmp_path / "1")
    assert (killed.code, killed.killed, killed.value) == (-signal.SIGKILL, True, None)
    failed = call(fork_server, "fail", tmp_path / "2")
    assert (failed.code, failed.killed, failed.value) == (70, False, None)
    assert "ValueError: a mistake" in failed.output


def test_a_child_that_has_ended_before_it_is_looked_at_does_not_hang(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, read = tmp_path / "1/answer.json", _Link.read

    def both_are_told(pipe: int) -> bool:
        if not answer.exists() or not (pid := answer.read_text()):
            return False
        waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        return waiting >= len(f"{pid}\n0\n")  # its number, and how it has ended

    def read_late(link: _Link) -> int:
        wait_until(lambda: both_are_told(link.reads), "the child to be over")
        monkeypatch.setattr(_Link, "read", read)
        return read(link)

    monkeypatch.setattr(_Link, "read", read_late)
    (tmp_path / "1").mkdir()
    ended = fork_server.call("os:getpid", {}, folder=tmp_path / "1", timeout_seconds=300)
    assert (ended.code, ended.timed_out) == (0, False)


def test_modules_of_the_working_directory_are_not_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('not the one of Python')")
    monkeypatch.chdir(tmp_path)
    server = ForkServer()
    try:
        (tmp_path / "1").mkdir()
        assert server.call("os:getpid", {}, folder=tmp_path / "1", timeout_seconds=300).code == 0
    finally:
        server.close()


def test_a_child_that_hangs_is_killed_with_all_that_it_has_started(fork_server: ForkServer, tmp_path: Path) -> None:
    ended = call(fork_server, "hang", tmp_path / "1", file=str(tmp_path / "pid"), timeout_seconds=6)
    assert ended.timed_out
    assert not ended.killed
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(pid)
    assert call(fork_server, "told", tmp_path / "2").code == 0, "the server goes on"


def _children(pid: int) -> set[int]:
    return {int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()}


def _runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Numbers:
    """A dataset of three shards of four rows."""

    schema = pa.schema([pa.field("n", pa.int64())])
    vocabulary = ("a", "b")

    def shards(self) -> list[Shard]:
        return [Shard(id=f"s{number}", num_rows=4) for number in range(3)]

    def read_shard(self, shard: Shard, columns: object, offset: int) -> Iterator[pa.RecordBatch]:
        assert shard.num_rows == 4, "the source sees its own shards"
        first = 4 * int(shard.id[1:])
        for row in range(first + offset, first + 4, 2):
            yield pa.record_batch({"n": list(range(row, min(row + 2, first + 4)))})


def rows(dataset: Beginning, offset: int = 0) -> list[int]:
    return [
        row
        for shard in dataset.shards()
        for batch in dataset.read_shard(shard, None, offset)
        for row in batch.column("n").to_pylist()
    ]


def test_an_excerpt_ends_in_the_middle_of_a_shard_and_of_little_data_is_all_of_it() -> None:
    dataset = Beginning(Numbers(), 7)
    assert [shard.num_rows for shard in dataset.shards()] == [4, 3]
    assert rows(dataset) == [0, 1, 2, 3, 4, 5, 6]
    assert rows(dataset, offset=1) == [1, 2, 3, 5, 6]
    assert (dataset.schema, dataset.vocabulary) == (Numbers.schema, ("a", "b"))
    assert rows(Beginning(Numbers(), 100)) == list(range(12))


def test_a_shortened_job_has_epochs_of_so_many_steps(tmp_path: Path) -> None:
    data = {"source": "mock", "num_rows": 1000, "batch_size": 8, "shuffle": True, "workers": 2}
    job = {"trainer": "x", "dataset": data, "accumulate": 2, "validation": {"source": "mock", "batch_size": 4}}
    short = shortened(job, folder=tmp_path, steps=3)
    assert short["dataset"] == {
        "source": "hostcore_conformance.excerpt:DataExcerpt",
        "original": "mock",
        "settings": {"num_rows": 1000},
        "whole": short["dataset"]["whole"],
        "folder": str(tmp_path),
        "rows": 52,
        "batch_size": 8,
        "shuffle": True,
        "workers": 0,
    }
    assert short["validation"]["rows"] == 8
    assert job["dataset"] is data, "the job given is not changed"


@pytest.mark.parametrize("aside", [True, False])
def test_looking_for_a_leak_leaves_what_was_set_aside(aside: bool) -> None:
    gc.unfreeze()
    if aside:
        gc.freeze()
    try:
        with memory._before_set_aside():
            assert gc.get_freeze_count() > 0
        assert (gc.get_freeze_count() > 0) == aside
    finally:
        gc.unfreeze()
