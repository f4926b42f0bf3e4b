"""The environments of a machine: built once, used by many, never half."""

import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from hostcore_environments import cache as cache_module
from hostcore_environments.cache import KEPT_VARIABLE, MOST_GB_VARIABLE, EnvironmentCache, InvalidSetting

RECORD = {"made_for": ["numpy"], "python": "3.12.1"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentCache:
    monkeypatch.setattr(cache_module, "_in_use", [])
    return EnvironmentCache(tmp_path / "environments")


def building(content: str = "whole", *, built: list[Path] | None = None) -> Callable[[Path], dict[str, Any]]:
    """Builds an environment of one file, beside its link to a Python."""

    def build(folder: Path) -> dict[str, Any]:
        if built is not None:
            built.append(folder)
        folder.mkdir()
        (folder / "file").write_text(content)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.executable)
        return RECORD

    return build


def unasked() -> None:
    raise AssertionError("it waits for another process")


def leave(_cache: EnvironmentCache) -> None:
    """End all uses, as the end of the process does it."""
    while cache_module._in_use:
        cache_module._in_use.pop().close()


def test_a_build_that_fails_leaves_nothing(cache: EnvironmentCache) -> None:
    def fails(folder: Path) -> dict[str, Any]:
        building()(folder)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        cache.get("a", fails, wait=unasked)
    assert not [one for one in cache.folder.iterdir() if one.is_dir()]
    assert cache.get("a", building(), wait=unasked).is_dir()


KILLED = """
    import os, signal, sys, time
    from pathlib import Path
    from hostcore_environments.cache import EnvironmentCache

    def build(folder):
        folder.mkdir()
        (folder / "file").write_text("half")
        print("building", flush=True)
        time.sleep(600)

    EnvironmentCache(Path(sys.argv[1])).get("a", build, wait=lambda: None)
"""


def test_one_whose_python_is_gone_is_built_anew(cache: EnvironmentCache) -> None:
    place = cache.get("a", building("with a Python of another day"), wait=unasked)
    leave(cache)
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to(cache.folder / "uninstalled")
    assert (cache.get("a", building("anew"), wait=unasked) / "file").read_text() == "anew"
    assert not list(cache.folder.glob("*.building"))


def test_a_build_waits_for_no_other_disk(cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sync")
    assert cache.get("a", building(), wait=unasked).is_dir()


def test_a_lock_is_given_as_nfs_gives_it(cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFSv4 makes of them locks of ranges, which need what flock(2) says. A test cannot mount it."""
    usual = fcntl.flock

    def nfs(lock: IO[bytes], how: int) -> None:
        if (how & fcntl.LOCK_SH and not lock.readable()) or (how & fcntl.LOCK_EX and not lock.writable()):
            raise OSError(9, "Bad file descriptor")
        usual(lock, how)

    monkeypatch.setattr(fcntl, "flock", nfs)
    assert cache.get("a", building(), wait=unasked).is_dir()
    leave(cache)
    assert cache.remove("a")


@pytest.fixture
def builder(cache: EnvironmentCache) -> subprocess.Popen[str]:
    """A process that is building the environment ``a``, and never comes to an end."""
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(cache.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        yield process
        process.kill()


@pytest.mark.parametrize("how", ["another is built", "all are removed"])
def test_what_a_killed_build_has_left_goes_with_the_next_of_any_other(
    cache: EnvironmentCache, builder: subprocess.Popen[str], how: str
) -> None:
    builder.kill()
    builder.wait()
    (left,) = cache.folder.glob("*.building")
    if how == "another is built":
        cache.get("b", building(), wait=unasked)
    else:
        assert cache.clear() == [left.name]
    assert not left.exists()


def test_what_is_being_built_is_left_alone(cache: EnvironmentCache, builder: subprocess.Popen[str]) -> None:
    (left,) = cache.folder.glob("*.building")
    cache.get("b", building(), wait=unasked)
    assert cache.clear() == []
    assert (left / "file").read_text() == "half"


@pytest.mark.parametrize("gone", ["folder", "record"])
def test_one_that_is_removed_while_they_are_listed_is_left_out(
    cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    for key in "ab":
        cache.get(key, building(), wait=unasked)
    usual, sized = cache_module._size, list[str]()

    def size(folder: Path) -> int:
        if not sized:  # another process removes the other one meanwhile
            other = folder.with_name("b" if folder.name == "a" else "a")
            shutil.rmtree(other) if gone == "folder" else (other / "environment.json").unlink()
        sized.append(folder.name)
        return usual(folder)

    monkeypatch.setattr(cache_module, "_size", size)
    assert [one.key for one in cache.all()] == sized
    assert len(sized) == 1


def test_what_outlives_a_killed_build_writes_into_no_other(
    cache: EnvironmentCache, builder: subprocess.Popen[str]
) -> None:
    (left,) = cache.folder.glob("*.building")
    builder.kill()
    builder.wait()
    assert cache.all() == []

    def build(folder: Path) -> dict[str, Any]:
        left.mkdir(exist_ok=True)
        (left / "late").touch()  # as its uv may
        return building()(folder)

    place = cache.get("a", build, wait=unasked)
    assert sorted(one.name for one in place.iterdir()) == ["bin", "environment.json", "file"]
    leave(cache)
    assert cache.remove("a")
    assert not left.exists()


def test_one_that_another_process_builds_is_waited_for_and_told_again_and_again(
    cache: EnvironmentCache, builder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "TOLD_SECONDS", 0.0)
    told: list[str] = []

    def wait() -> None:
        told.append("waiting")
        if len(told) == 3:
            builder.kill()

    assert (cache.get("a", building(), wait=wait) / "file").read_text() == "whole"
    assert len(told) >= 3


def test_one_that_is_used_is_not_removed(cache: EnvironmentCache) -> None:
    place = cache.get("a", building(), wait=unasked)
    assert not cache.remove("a")
    assert place.is_dir()
    leave(cache)
    assert cache.remove("a")
    assert cache.all() == []


def test_the_least_recently_used_is_removed_where_there_are_too_many(
    cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEPT_VARIABLE, "2")
    for moment, key in enumerate("abc", 1_000):
        if key == "c":  # "a" is used again: "b" is older
            cache.get("a", building(), wait=unasked)
        place = cache.get(key, building(), wait=unasked)
        leave(cache)
        os.utime(place / "environment.json", (moment, moment))
    assert {one.key for one in cache.all()} == {"a", "c"}


def test_so_are_those_that_are_too_large_together(cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "most_bytes", lambda: 20_000)
    for moment, key in enumerate("abc", 1_000):
        place = cache.get(key, building("x" * 8_000), wait=unasked)
        if key != "b":  # which is in use
            leave(cache)
        os.utime(place / "environment.json", (moment, moment))
    assert {one.key for one in cache.all()} == {"b", "c"}


@pytest.mark.parametrize("told", ["0", "many", "-1", "1.5"])
def test_a_bound_is_a_number(cache: EnvironmentCache, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv(MOST_GB_VARIABLE, told)
    with pytest.raises(InvalidSetting, match=f"{MOST_GB_VARIABLE} is '{told}'"):
        cache.get("a", building(), wait=unasked)
