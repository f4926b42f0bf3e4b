"""A process that serves calls: its answers, its errors, and its end. ``extensions/trackers/tests/e2e`` has hangs."""

import os
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hostcore_hookspecs import FatalError, TransientError
from hostcore_trackers.library_process import LibraryProcess

SESSION = """
    import os
    import tempfile
    from pathlib import Path
    from hostcore_hookspecs import FatalError, TransientError
    from hostcore_trackers.library_process import serve

    class Session:
        def pid(self): return os.getpid()
        def leave(self): return tempfile.mkdtemp()
        def double(self, *, number): return 2 * number
        def refuse(self): raise FatalError("no such user", hint="log in")
        def wait(self): raise TransientError("busy")
        def fail(self): return {}["missing"]
        def die(self):
            print("out of memory", flush=True)
            os._exit(3)
        def end(self): Path(os.environ["ENDED"]).touch()

    serve(Session())
"""


class Workshop:
    """Where the session's module is, and where its end is noted."""

    def __init__(self, folder: Path) -> None:
        self.log, self.ended, self.temporary = folder / "logs" / "library.log", folder / "ended", folder / "tmp"
        self.temporary.mkdir()
        self.environment = {**os.environ, "PYTHONPATH": str(folder), "ENDED": str(self.ended)}
        (folder / "the_session.py").write_text(textwrap.dedent(SESSION))
        (folder / "hangs.py").write_text("import time; time.sleep(600)")

    def start(self, module: str = "the_session", *, timeout_seconds: float = 300) -> LibraryProcess:
        environment, log = self.environment, self.log
        return LibraryProcess(
            module, library="the library", environment=environment, log=log, timeout_seconds=timeout_seconds
        )


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    workshop = Workshop(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(workshop.temporary))
    return workshop


@pytest.fixture
def process(workshop: Workshop) -> Iterator[LibraryProcess]:
    process = workshop.start()
    yield process
    if process.is_usable:
        process.close()


def is_alive(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_it_answers_until_it_is_closed_and_ends_its_session_then(process: LibraryProcess, workshop: Workshop) -> None:
    assert [process.call("double", number=number) for number in (1, 2)] == [2, 4]
    pid = process.call("pid")
    process.close()
    assert workshop.ended.exists()
    assert not is_alive(pid)
    assert not workshop.log.exists(), "it has printed nothing"


@pytest.mark.parametrize(
    ("method", "error", "message", "hint"),
    [
        ("refuse", FatalError, "no such user", "log in"),
        ("wait", TransientError, "busy", None),
        ("fail", TransientError, "KeyError: 'missing'", None),
        ("die", TransientError, "the process of the library has ended: … out of memory", None),
    ],
)
def test_after_an_error_it_has_ended(
    method: str, error: type[Exception], message: str, hint: str | None, process: LibraryProcess
) -> None:
    pid = process.call("pid")
    with pytest.raises(error) as caught:
        process.call(method)
    assert str(caught.value) == message
    assert getattr(caught.value, "hint", None) == hint
    assert not process.is_usable
    assert not is_alive(pid)


def test_a_large_call_that_is_not_read_ends_in_time(workshop: Workshop) -> None:
    process = workshop.start("hangs", timeout_seconds=0.5)
    with pytest.raises(TransientError, match="has not answered within"):
        process.call("double", number="9" * 5_000_000)
    assert not process.is_usable


def test_its_temporary_files_end_with_it_also_where_it_dies(workshop: Workshop) -> None:
    process, other = workshop.start(), workshop.start()
    left, used = (Path(one.call("leave")) for one in (process, other))
    assert left.parent.parent == used.parent.parent == workshop.temporary
    with pytest.raises(TransientError):
        process.call("die")
    assert list(workshop.temporary.iterdir()) == [used.parent], "the one of the other process stays"
    other.close()
    assert list(workshop.temporary.iterdir()) == []
