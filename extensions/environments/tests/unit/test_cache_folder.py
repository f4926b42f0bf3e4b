import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostcore.runs.directory import cache_dir, user_cache
from hostcore_environments.cache import cache_folder

#: Of no user that there is.
UID = 54_321


def asked(home: str | None, temporary: Path, answers: Any) -> None:
    os.setgroups([])
    os.setgid(UID)
    os.setuid(UID)
    for name in ("HOME", "XDG_CACHE_HOME", "HOSTCORE_CACHE_DIR", "HOSTCORE_ENVIRONMENTS_DIR"):
        os.environ.pop(name, None)
    tempfile.tempdir = None  # as a process begins
    os.environ |= {"TMPDIR": str(temporary)} | ({"HOME": home} if home else {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [cache_dir(), cache_folder(), cache_dir()]
    answers.put((found, [str(one.message) for one in caught], user_cache().stat().st_mode & 0o777))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for everybody; pytest's own are this user's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def ask(home: str | None, temporary: Path) -> Any:
    """The folders, as a user with a home of this kind finds them."""
    context = multiprocessing.get_context("fork")  # the interpreter may lie where only this user can read it
    answers = context.SimpleQueue()
    process = context.Process(target=asked, args=(home, temporary, answers))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return answers.get()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")


@needs_root
@pytest.mark.parametrize("home", [None, "/", "/nonexistent/home"])
def test_a_user_without_a_home_has_a_temporary_cache_and_a_warning(home: str | None, temporary: Path) -> None:
    folders, told, mode = ask(home, temporary)
    cache = temporary / f"hostcore-cache-{UID}"
    assert folders == [cache / "hostcore", cache / "hostcore" / "environments", cache / "hostcore"]
    assert told == [f"the user {UID} has no home: the cache is {cache}, unless HOSTCORE_CACHE_DIR names a folder"]
    assert mode == 0o700


@needs_root
def test_a_temporary_cache_that_somebody_else_has_made_is_not_used(temporary: Path) -> None:
    (temporary / f"hostcore-cache-{UID}").mkdir()
    folders, _, mode = ask(None, temporary)
    assert folders[0].parent.parent == temporary
    assert folders[0].parent.name != f"hostcore-cache-{UID}"
    assert mode == 0o700
