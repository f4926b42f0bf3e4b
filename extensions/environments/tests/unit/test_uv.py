"""What uv says, as people are told it. The texts are those of uv 0.13."""

import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
from http_serving import serving
from package_index import Index
from waiting import wait_until

from hostcore_builtin_plugins.processes import children
from hostcore_environments import uv as uv_module
from hostcore_environments.uv import EnvironmentFailed, Uv, _failure, _under_way

LOCK = """
lock-version = "1.0"
created-by = "tests"
[[packages]]
name = "project"
directory = {path = "project"}
"""
PROJECT = """
[project]
name = "project"
version = "1.0"
[build-system]
requires = ["backend>=2"]
build-backend = "backend"
"""
OFFLINE = """\
Using Python 3.11.7
error: No solution found when resolving dependencies
  cause: Because a was not found in the cache and you require a>=1, we can conclude that it cannot be.

hint: Packages were unavailable because the network was disabled.
"""


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (OFFLINE, "No solution found when resolving dependencies: Because a was not found", "Packages were"),
        ("Segmentation fault", "Segmentation fault", ""),
        ("", "uv exited with 139", ""),
    ],
)
def test_its_reason_is_the_message(said: str, message: str, hint: str) -> None:
    error = _failure(said.splitlines(), 139, Path("uv.log"))
    assert error.message.startswith(message)
    assert (error.hint or "").startswith(hint or "everything that uv said is in uv.log")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def uv(tmp_path: Path, told: list[str]) -> Uv:
    return Uv(folder=tmp_path, log=tmp_path / "uv.log", tell=told.append)


class SilentIndex(BaseHTTPRequestHandler):
    """An index that answers when it is told to."""

    answering = threading.Event()

    def do_GET(self) -> None:
        self.answering.wait()
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def silent_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    SilentIndex.answering.clear()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), SilentIndex)) as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}/simple")
        yield SilentIndex.answering
        SilentIndex.answering.set()


def test_while_it_is_silent_it_is_told_what_it_does(
    uv: Uv, silent_index: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uv_module, "QUIET_SECONDS", 0.05)
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        silent_index.set()

    wanted = uv.folder / "requirements.in"
    wanted.write_text("left-pad")
    with pytest.raises(EnvironmentFailed, match="left-pad was not found"):
        attrs.evolve(uv, tell=tell)("pip", "compile", "--output-file", uv.folder / "out", wanted, doing="resolving")
    assert re.fullmatch(r"environment: resolving, \d+\.\ds", told[0])


def test_it_ends_where_what_it_does_is_not_needed_any_more(
    uv: Uv, silent_index: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotNeeded(Exception):
        pass

    def tell(_: str) -> None:
        raise NotNeeded

    monkeypatch.setattr(uv_module, "QUIET_SECONDS", 0.05)
    before = children(os.getpid())
    wanted = uv.folder / "requirements.in"
    wanted.write_text("left-pad")
    with pytest.raises(NotNeeded):
        attrs.evolve(uv, tell=tell)("pip", "compile", "--output-file", uv.folder / "out", wanted)
    assert not silent_index.is_set()
    assert children(os.getpid()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux alone ends children with their parent")
def test_it_ends_with_a_process_that_is_killed(uv: Uv, silent_index: threading.Event) -> None:
    (uv.folder / "requirements.in").write_text("left-pad")
    program = (
        "import sys; from pathlib import Path; from hostcore_environments.uv import Uv; place = Path(sys.argv[1]);"
        "Uv(place, place / 'log', print)('pip', 'compile', '--output-file', place / 'out', place / 'requirements.in')"
    )
    with subprocess.Popen([sys.executable, "-c", program, uv.folder], stdout=subprocess.DEVNULL) as parent:
        (child,) = wait_until(lambda: children(parent.pid), "uv")
        parent.kill()
    wait_until(lambda: not _runs(child), "the end of uv")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_ends_where_its_words_cannot_be_kept(uv: Uv, silent_index: threading.Event) -> None:
    before = children(os.getpid())
    wanted = uv.folder / "requirements.in"
    wanted.write_text("left-pad")
    with pytest.raises(IsADirectoryError):
        attrs.evolve(uv, log=uv.folder)("pip", "compile", "--output-file", uv.folder / "out", wanted)
    assert not silent_index.is_set()
    assert children(os.getpid()) == before


def test_what_is_under_way_is_told_with_its_size() -> None:
    said = ["Downloading torch (195.1MiB)", "Downloading numpy (16.2MiB)", "   Building mine==1.0", " Downloaded numpy"]
    assert _under_way(said) == "downloading torch (195.1MiB), building mine==1.0"
    assert _under_way([*said, "Prepared 3 packages in 9s"]) == ""


def test_without_uv_it_is_said_how_to_get_it(uv: Uv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("no uv in any of these places")

    for found in (nowhere, lambda: str(tmp_path / "uv")):
        monkeypatch.setattr(uv_module, "find_uv_bin", found)
        with pytest.raises(EnvironmentFailed, match="uv cannot be started") as failed:
            uv("venv", "made")
        assert failed.value.hint == "pip install --force-reinstall uv"


def test_an_environment_around_it_does_not_mislead_it(uv: Uv, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("UV_CONSTRAINT", "/nowhere")
    uv("venv", "--no-project", "made")
    assert (uv.folder / "made" / "bin" / "python").exists()


def test_it_is_heard_where_many_files_are_open(uv: Uv, told: list[str]) -> None:
    """select(2) takes no number of a file above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    (uv.folder / "requirements.in").touch()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        uv("pip", "compile", "--output-file", uv.folder / "out", uv.folder / "requirements.in")
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Resolved" in "".join(told)


@pytest.mark.parametrize("name", ["UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_REQUIRE_HASHES"])
def test_what_is_made_here_is_installed_whatever_is_asked_of_others(
    uv: Uv, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wheel = Index(uv.folder).publish("made-here")
    told = uv.folder / "told.txt"
    told.write_text({"UV_EXCLUDE": "made-here"}.get(name, "made-here==2.0"))
    monkeypatch.setenv(name, "1" if name == "UV_REQUIRE_HASHES" else str(told))
    uv("venv", "--no-project", "made")
    uv("pip", "install", "--python", "made/bin/python", "--offline", "--no-deps", wheel, made_here=True)
    assert list(uv.folder.glob("made/lib/python*/site-packages/made_here-1.0.dist-info"))


def test_constraints_of_what_is_needed_to_build_count_beside_a_lock(uv: Uv, monkeypatch: pytest.MonkeyPatch) -> None:
    needed, index = uv.folder / "needed.txt", Index(uv.folder / "index")
    index.path.mkdir()
    index.publish("backend", version="1.0")
    index.publish("backend", version="2.0")
    needed.write_text("backend==1.0")
    for variable, value in {**index.environment, "UV_BUILD_CONSTRAINT": str(needed)}.items():
        monkeypatch.setenv(variable, value)
    project = uv.folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (uv.folder / "pylock.toml").write_text(LOCK)
    uv("venv", "--no-project", "made")
    with pytest.raises(EnvironmentFailed, match=r"backend>=2"):
        uv("pip", "sync", "--python", "made/bin/python", "pylock.toml")
