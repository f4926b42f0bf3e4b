"""Inputs come from stores to a cache: once for each version, whole or not at all."""

import errno
import hashlib
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFile

from hostcore.errors import Errors
from hostcore.supervisor.remote.inputs import fetch_inputs
from hostcore_hookspecs.errors import HostcoreError


def error_of(caught: "pytest.ExceptionInfo[Errors]") -> HostcoreError:
    (error,) = caught.value.errors
    return error


def test_a_job_without_inputs_has_none_and_makes_no_cache(fetch: Any) -> None:
    assert fetch({}) == {}
    assert not (fetch.folder / "cache").exists()


def test_a_file_of_a_store_comes_to_the_cache_under_its_own_name_with_where_it_came_from(
    fetch: Any, memory: Any
) -> None:
    memory.pipe("/models/weights.bin", b"heavy")
    (path,) = fetch({"model": "memory://models/weights.bin"}).values()
    assert path.is_absolute()
    assert (path.name, path.read_bytes()) == ("weights.bin", b"heavy")
    assert path.is_relative_to(fetch.folder / "cache" / "inputs")
    source = json.loads((path.parents[1] / "source.json").read_text())
    assert source["uri"] == "memory://models/weights.bin"
    assert source["files"][0]["sha256"] == hashlib.sha256(b"heavy").hexdigest()


@pytest.mark.parametrize("uri", ["memory://models/bert", "memory://models/bert/", "memory:///models/bert//"])
def test_a_folder_comes_with_everything_below_it(fetch: Any, memory: Any, uri: str) -> None:
    files = {"config.json": b"{}", "deep/er/vocab ä €.txt": b"words", "empty": b""}
    for name, content in files.items():
        memory.pipe(f"/models/bert/{name}", content)
    memory.pipe("/models/bert-large/config.json", b"another")
    folder = fetch({"model": uri})["model"]
    assert folder.name == "bert"
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == files


def test_only_a_new_version_is_transferred_again_although_the_store_remembers_its_listing(
    fetch: Any, troubled: Any
) -> None:
    troubled().pipe("/a/b", b"old")
    before = fetch({"model": "troubled://a/b"})["model"]
    assert fetch({"again": "troubled://a/b"})["again"] == before
    assert troubled.calls.count("get_file") == 1
    troubled().pipe("/a/b", b"new")
    assert fetch({"model": "troubled://a/b"})["model"].read_bytes() == b"new"
    assert before.read_bytes() == b"old"  # a run that uses it still has it


def test_a_cached_file_that_somebody_has_changed_is_fetched_again(fetch: Any, memory: Any) -> None:
    memory.pipe("/a/b", b"right")
    path = fetch({"model": "memory://a/b"})["model"]
    path.write_bytes(b"wrong")
    os.utime(path, ns=(1, 1))  # a file system whose clock is coarse may have given both the same time
    assert fetch({"model": "memory://a/b"})["model"].read_bytes() == b"right"


def test_without_the_store_what_was_fetched_before_is_used_with_a_warning(fetch: Any, troubled: Any) -> None:
    troubled().pipe("/a/b", b"x")
    troubled.trouble["info"] = [ConnectionError("no route")]
    with pytest.raises(Errors) as caught:
        fetch({"model": "troubled://a/b"})
    error = error_of(caught)
    assert (error.code, error.pointer, error.file) == ("store.unreachable", "/inputs/model", "troubled://a/b")
    assert "no route" in error.message
    path = fetch({"model": "troubled://a/b"})["model"]
    troubled.trouble["info"] = [ConnectionError("no route")]
    assert fetch({"model": "troubled://a/b"})["model"] == path
    assert "no route" in fetch.told[-1]
    assert "fetched from there before" in fetch.told[-1]


def test_a_transfer_that_breaks_is_tried_again(fetch: Any, troubled: Any) -> None:
    troubled().pipe("/a/b", b"whole")
    troubled.trouble["get_file"] = [ConnectionResetError("reset"), TimeoutError("slow")]
    assert fetch({"model": "troubled://a/b"})["model"].read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        ([ConnectionResetError("reset")] * 3, "store.unreachable", "reset"),
        ([OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], "store.no_space", "disk is full"),
        ([PermissionError("Access Denied")], "store.denied", "permission denied"),
        ([FileNotFoundError("gone")], "store.missing", "nothing at"),
    ],
)
def test_a_transfer_that_fails_leaves_nothing_half_written(
    fetch: Any, troubled: Any, trouble: list[BaseException], code: str, words: str
) -> None:
    troubled().pipe("/a/b", b"whole")
    troubled.trouble["get_file"] = trouble
    with pytest.raises(Errors) as caught:
        fetch({"model": "troubled://a/b"})
    error = error_of(caught)
    assert (error.code, error.pointer) == (code, "/inputs/model")
    assert words in error.message
    assert error.hint
    assert fetch.cached == []


def test_content_with_its_sha256_later_needs_no_store_and_with_another_is_refused_and_not_kept(
    fetch: Any, troubled: Any
) -> None:
    troubled().pipe("/a/b", b"x")
    with pytest.raises(Errors, match="SHA-256") as caught:
        fetch({"model": {"uri": "troubled://a/b", "sha256": "0" * 64}})
    assert (error_of(caught).code, error_of(caught).pointer) == ("store.content", "/inputs/model")
    assert fetch.cached == []
    one = {"uri": "troubled://a/b", "sha256": hashlib.sha256(b"x").hexdigest()}
    path = fetch({"model": one})["model"]
    calls = len(troubled.calls)
    troubled().pipe("/a/b", b"changed since")
    assert fetch({"model": one})["model"] == path
    assert len(troubled.calls) == calls


def test_a_file_of_this_machine_is_used_where_it_is(fetch: Any) -> None:
    (fetch.folder / "model ü").write_bytes(b"x")
    inputs = {
        "plain": str(fetch.folder / "model ü"),
        "relative": "./model ü",
        "bare": "model ü",
        "uri": f"file://{fetch.folder}/model ü",
        "right": {"ref": "./model ü", "sha256": hashlib.sha256(b"x").hexdigest()},
    }
    assert set(fetch(inputs).values()) == {fetch.folder / "model ü"}
    assert fetch.cached == []


def test_all_that_is_wrong_is_told_at_once_each_with_its_pointer(fetch: Any, memory: Any) -> None:
    (fetch.folder / "here").write_bytes(b"x")
    memory.pipe("/folder/file", b"x")
    inputs = {
        "absent": "/not/there",
        "sum": {"uri": "./here", "sha256": "0" * 64},
        "a/b": "memory://nothing",
        "scheme": "s4://bucket/x",
        "folder": {"uri": "memory://folder", "sha256": "0" * 64},
        "fine": "./here",
    }
    for act in (fetch, fetch.examine):
        with pytest.raises(Errors) as caught:
            act(inputs, weights="nowhere.bin")
        assert {(error.pointer, error.code) for error in caught.value.errors} == {
            ("/weights", "weights.missing"),
            ("/inputs/absent", "input.missing"),
            ("/inputs/sum/sha256", "store.content"),
            ("/inputs/a~1b", "store.missing"),
            ("/inputs/scheme", "store.scheme"),
            ("/inputs/folder/sha256", "input.folder"),
        }


def test_a_name_that_leads_out_of_the_folder_is_refused(fetch: Any, memory: Any) -> None:
    memory.store["/evil/../../x"] = MemoryFile(memory, "/evil/../../x", b"x")
    memory.pipe("/evil/fine", b"x")
    with pytest.raises(Errors) as caught:
        fetch({"model": "memory://evil"})
    assert error_of(caught).code == "store.name"
    assert fetch.cached == []


def test_nothing_is_transferred_by_examining_nor_before_all_inputs_were_found(fetch: Any, troubled: Any) -> None:
    troubled().pipe("/a/b", b"x")
    fetch.examine({"model": "troubled://a/b"})
    with pytest.raises(Errors, match="nothing at"):
        fetch({"large": "troubled://a/b", "missing": "troubled://a/c"})
    assert "get_file" not in troubled.calls
    assert fetch.cached == []


def test_two_processes_that_fetch_the_same_transfer_it_once(fetch: Any, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(os.urandom(1 << 20))
    context = multiprocessing.get_context("spawn")
    uri = f"simplecache::file://{source}"
    with context.Pool(3) as pool:
        found = pool.map(_fetch_elsewhere, [(uri, str(tmp_path / "cache"), str(tmp_path))] * 3)
    assert len({path for path, _ in found}) == 1
    assert sum("fetching" in line and "another" not in line for _, told in found for line in told) == 1
    assert Path(found[0][0]).read_bytes() == source.read_bytes()
    assert len(fetch.cached) == 2  # the content, and where it came from


def _fetch_elsewhere(what: tuple[str, str, str]) -> tuple[str, list[str]]:
    from hostcore.job.load import load_job

    uri, cache, folder = what
    os.environ["HOSTCORE_CACHE_DIR"] = cache
    job = {"trainer": "somewhere:Trainer", "max_steps": 1, "inputs": {"model": uri}}
    told: list[str] = []
    return fetch_inputs(load_job(job, job_dir=Path(folder)), (), told.append)["model"], told


def test_what_a_killed_process_has_left_is_removed_by_the_next(fetch: Any, memory: Any) -> None:
    memory.pipe("/a/b", b"x")
    shelf = fetch({"model": "memory://a/b"})["model"].parents[2]
    left = shelf / ".0123.4711.tmp"
    left.mkdir()
    (left / "half").write_bytes(b"half")
    memory.pipe("/a/b", b"y")
    fetch({"model": "memory://a/b"})
    assert not left.exists()


def test_a_cache_that_cannot_be_written_is_told_with_its_path(
    fetch: Any, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/a/b", b"x")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(Errors, match=str(tmp_path / "file")) as caught:
        fetch({"model": "memory://a/b"})
    error = error_of(caught)
    assert (error.code, error.pointer) == ("store.local", "/inputs/model")
    assert "HOSTCORE_CACHE_DIR" in str(error.hint)


def test_an_input_that_is_no_file_is_not_waited_for(fetch: Any) -> None:
    os.mkfifo(fetch.folder / "pipe")
    with pytest.raises(Errors) as caught:
        fetch({"model": {"ref": "./pipe", "sha256": "0" * 64}})
    assert "is neither a file nor a folder" in error_of(caught).message
