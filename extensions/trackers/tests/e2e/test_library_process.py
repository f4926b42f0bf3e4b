"""A process that serves calls, and hangs, or outlives the supervisor that was killed."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_until

from hostcore_hookspecs import TransientError
from hostcore_trackers.library_process import LibraryProcess

SESSION = """
    import os, time
    from pathlib import Path
    from hostcore_trackers.library_process import serve

    class Session:
        def pid(self): return os.getpid()
        def hang(self): time.sleep(600)
        def end(self): Path(os.environ["ENDED"]).touch()

    serve(Session())
"""

SUPERVISOR = """
    import os, sys, threading
    from pathlib import Path
    from hostcore_trackers.library_process import LibraryProcess
    log = Path("library.log")
    process = LibraryProcess("the_session", library="x", environment=os.environ, log=log, timeout_seconds=5)
    if not os.fork():
        threading.Event().wait()    # a process that holds the reporter's end of the connection open
    print(process.call("pid"), flush=True)
    if sys.argv[1] == "hang":
        process.call("hang")
    threading.Event().wait()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "the_session.py").write_text(textwrap.dedent(SESSION))
    return {**os.environ, "PYTHONPATH": str(tmp_path), "ENDED": str(tmp_path / "ended")}


def is_alive(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_call_that_hangs_is_killed(environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "library.log"
    process = LibraryProcess("the_session", library="it", environment=environment, log=log, timeout_seconds=10)
    pid = process.call("pid")
    with pytest.raises(TransientError, match="it has not answered within 10 s"):
        process.call("hang")
    assert not is_alive(pid)


@pytest.mark.parametrize("doing", ["nothing", "hang"])
def test_it_ends_soon_after_a_supervisor_that_was_killed(
    doing: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), doing]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        supervisor.kill()
        wait_until(lambda: not is_alive(pid), "the process of the library to end")
        os.killpg(supervisor.pid, signal.SIGKILL)
    assert (tmp_path / "ended").exists() == (doing == "nothing")
