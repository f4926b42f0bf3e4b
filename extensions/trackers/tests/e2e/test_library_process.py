"""A process that serves calls, and hangs, or outlives the supervisor that was killed."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import wait_until

from hostcore_hookspecs import TransientError
from hostcore_trackers.library_process import LibraryProcess

SESSION = """
    import os, tempfile, time
    from pathlib import Path
    from hostcore_trackers.library_process import serve

    class Session:
        def pid(self):
            tempfile.mkdtemp()
            return os.getpid()
        def hang(self):
            Path(os.environ["HANGS"]).touch()
            time.sleep(600)
        def end(self): Path(os.environ["ENDED"]).touch()

    serve(Session())
"""

SUPERVISOR = """
    import os, sys, threading
    from pathlib import Path
    from hostcore_trackers.library_process import LibraryProcess
    log = Path("library.log")
    seconds = 2 if sys.argv[1] == "hang" else 300    # for its end
    process = LibraryProcess("the_session", library="x", environment=os.environ, log=log, timeout_seconds=seconds)
    process._timeout_seconds = 300    # to start takes longer on a busy machine; and the call hangs until it is killed
    if sys.argv[1] != "alone" and not os.fork():
        threading.Event().wait()    # a process that holds the reporter's end of the connection open
    print(process.call("pid"), flush=True)
    if sys.argv[1] == "hang":
        process.call("hang")
    threading.Event().wait()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "the_session.py").write_text(textwrap.dedent(SESSION))
    (tmp_path / "tmp").mkdir()
    ours = {"PYTHONPATH": "", "ENDED": "ended", "HANGS": "hangs", "TMPDIR": "tmp"}
    return {**os.environ, **{name: str(tmp_path / path) for name, path in ours.items()}}


@contextmanager
def supervisor(doing: str, environment: dict[str, str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A supervisor, and the number of the library's process; killed in the end with what it has forked."""
    command = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), doing]
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_call_that_hangs_is_killed(environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "library.log"
    process = LibraryProcess("the_session", library="it", environment=environment, log=log, timeout_seconds=300)
    pid = process.call("pid")
    process._timeout_seconds = 1  # it has started, which takes longer on a busy machine
    with pytest.raises(TransientError, match="it has not answered within 1 s"):
        process.call("hang")
    assert not is_alive(pid)


def test_a_large_call_that_is_not_read_ends_in_time(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time; time.sleep(600)")
    log = tmp_path / "library.log"
    process = LibraryProcess("hangs", library="it", environment=environment, log=log, timeout_seconds=0.5)
    with pytest.raises(TransientError, match="has not answered within"):
        process.call("double", number="9" * 5_000_000)
    assert not process.is_usable


@pytest.mark.parametrize("doing", ["nothing", "hang"])
def test_it_ends_soon_after_a_supervisor_that_was_killed(
    doing: str, environment: dict[str, str], tmp_path: Path
) -> None:
    with supervisor(doing, environment, tmp_path) as (process, pid):
        if doing == "hang":
            wait_until((tmp_path / "hangs").exists, "the call that hangs")
        process.kill()
        wait_until(lambda: not is_alive(pid), "the process of the library to end")
    assert (tmp_path / "ended").exists() == (doing == "nothing")
    assert list((tmp_path / "tmp").iterdir()) == [], "its temporary files"


def test_temporary_files_of_a_process_that_was_killed_with_its_supervisor_are_removed_by_the_next(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervisor("alone", environment, tmp_path) as (_, pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the process of the library to end")
    (left,) = (tmp_path / "tmp").iterdir()
    assert list(left.iterdir()) != []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    log = tmp_path / "next.log"
    LibraryProcess("the_session", library="x", environment=environment, log=log, timeout_seconds=300).close()
    assert list((tmp_path / "tmp").iterdir()) == []
