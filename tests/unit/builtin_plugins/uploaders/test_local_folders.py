"""The uploader ``fsspec`` into folders of this machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_builtin_plugins.stores.put import name_for_writing
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_hookspecs import Artifact, FatalError

Make = Callable[..., Artifact]

#: Uploads a file and dies in the middle, as by SIGKILL.
DIES = """
import hashlib, os, sys
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_hookspecs import Artifact, UploadContext

source, store = sys.argv[1:]
calls = []
def is_canceled():
    calls.append(1)
    if len(calls) == 2:
        os._exit(9)
    return False
uploader = FsspecUploader(settings=FsspecUploader.Settings(uri=store))
uploader.open(UploadContext(run_id="r", run_dir="/r", base_uri=None, prefix="p", is_canceled=is_canceled))
data = open(source, "rb").read()
digest = hashlib.sha256(data).hexdigest()
uploader.upload_artifact(
    Artifact(kind="checkpoint", path=source, relative_path="a/model.bin", size=len(data), sha256=digest)
)
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(store: Path, context: Any) -> Callable[..., FsspecUploader]:
    def make(uri: str | None = None, **settings: Any) -> FsspecUploader:
        uploader = FsspecUploader(settings=FsspecUploader.Settings(uri=uri or str(store), **settings))
        uploader.open(context(prefix="p"))
        return uploader

    return make


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_the_base_of_the_job_is_taken_unless_the_uploader_has_its_own(
    tmp_path: Path, artifact: Make, context: Any
) -> None:
    for settings, place in ((None, "base"), (FsspecUploader.Settings(uri=f"file://{tmp_path}/own/"), "own")):
        uploader = FsspecUploader(settings=settings)
        uploader.open(context(base_uri=str(tmp_path / "base")))
        receipt = uploader.upload_artifact(artifact("config/run.json", b"{}"))
        assert receipt.uri == f"file://{tmp_path}/{place}/run-1/framework=tiny/config/run.json"
        assert (tmp_path / place / "run-1/framework=tiny/config/run.json").read_bytes() == b"{}"


def test_what_a_process_left_that_died_while_it_wrote_is_removed_by_the_next(
    store: Path, tmp_path: Path, artifact: Make, opened: Any
) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(bytes(20_000_000))
    died = subprocess.run([sys.executable, "-c", DIES, str(source), str(store)], check=False)
    assert died.returncode == 9
    (left,) = files_in(store)
    assert Path(left).parent == Path("p/a")
    assert Path(left).name.startswith(".hostcore-upload-")
    opened().upload_artifact(artifact("other.bin", b"x"))
    assert files_in(store) == ["p/other.bin"]


def test_what_living_processes_write_is_left_alone_and_so_is_what_others_hide(store: Path, opened: Any) -> None:
    folder = store / "p"
    folder.mkdir(parents=True)
    host, here = socket.gethostname(), name_for_writing()
    living = f".hostcore-upload-{host}-{os.getppid()}-00000000-1"
    elsewhere = ".hostcore-upload-another.machine-7-00000000-1"
    silent = ".hostcore-upload-another.machine-7-00000000-2"
    for name in (here, living, elsewhere, silent, ".hostcore-upload-notes", ".hidden"):
        (folder / name).write_bytes(b"")
    os.utime(folder / silent, (0, 0))
    opened()
    assert {file.name for file in folder.iterdir()} == {here, living, elsewhere, ".hostcore-upload-notes", ".hidden"}


def test_readers_see_the_old_file_or_the_new_one(store: Path, artifact: Make, opened: Any) -> None:
    uploader = opened()
    uploader.upload_artifact(artifact("a.bin", b"old"))
    with (store / "p" / "a.bin").open("rb") as reader:
        uploader.upload_artifact(artifact("a.bin", b"the new one"))
        assert reader.read() == b"old"
    assert (store / "p" / "a.bin").read_bytes() == b"the new one"


def test_a_folder_in_the_way_is_fatal_and_stays_and_so_is_an_artifact_that_has_changed(
    store: Path, artifact: Make, opened: Any
) -> None:
    (store / "p" / "a.bin" / "inside").mkdir(parents=True)
    with pytest.raises(FatalError, match="folder"):
        opened().upload_artifact(artifact("a.bin", b"x"))
    (store / "p" / "b").write_bytes(b"a file where a folder should be")
    with pytest.raises(FatalError):
        opened().upload_artifact(artifact("b/c.bin", b"x"))
    assert files_in(store) == ["p/b"]
    one = artifact("c.bin", b"content")
    Path(one.path).write_bytes(b"longer content")
    with pytest.raises(FatalError, match=r"c\.bin has 14 bytes, and had 7 when it was committed"):
        opened().upload_artifact(one)
    Path(one.path).unlink()
    with pytest.raises(FatalError, match=r"c\.bin is gone"):
        opened().upload_artifact(one)


def test_nothing_is_left_when_the_disk_is_full(store: Path, artifact: Make, opened: Any) -> None:
    one = artifact("a.bin", bytes(2_000_000))
    program = f"""
import os, resource, signal
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_hookspecs import Artifact, TransientError, UploadContext

uploader = FsspecUploader(settings=FsspecUploader.Settings(uri={str(store)!r}))
uploader.open(UploadContext(run_id="r", run_dir="/r", base_uri=None, prefix="p", is_canceled=lambda: False))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    uploader.upload_artifact(
        Artifact(kind="log", path={one.path!r}, relative_path="a.bin", size={one.size}, sha256={one.sha256!r})
    )
except TransientError:
    os._exit(7)  # nothing else of this process, such as the measuring of coverage, may write any more
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    assert files_in(store) == []


def test_a_folder_with_colons_chains_no_file_systems(tmp_path: Path, opened: Any, artifact: Make) -> None:
    receipt = opened(f"{tmp_path}/zip::runs").upload_artifact(artifact("a/b.bin", b"content"))
    assert files_in(tmp_path / "zip::runs") == ["p/a/b.bin"]
    assert receipt.uri == f"file://{tmp_path}/zip::runs/p/a/b.bin"


@pytest.fixture
def second(store: Path, tmp_path: Path, context: Any) -> Callable[[], FsspecUploader]:
    """``second()``: opened for the second attempt of a run."""
    run_dir = tmp_path / "run-1"
    (run_dir / "attempts").mkdir(parents=True)
    (run_dir / "attempts" / "2.json").write_bytes(b"ours")

    def make() -> FsspecUploader:
        uploader = FsspecUploader(settings=FsspecUploader.Settings(uri=str(store)))
        uploader.open(context(run_dir=str(run_dir), attempt=2, prefix="p"))
        return uploader

    return make


def _mirror(store: Path, **claims: bytes) -> None:
    """A run at the store, with these claims: ``_1=b"..."``."""
    for name, content in {"config/run": b"{}", **{f"attempts/{key[1:]}": one for key, one in claims.items()}}.items():
        path = store / "p" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("claims", [{"_2": b"theirs"}, {"_3": b"theirs"}, {"_2": b"ours", "_3": b"theirs"}])
def test_nothing_is_written_where_another_run_lies(store: Path, second: Any, claims: dict[str, bytes]) -> None:
    _mirror(store, **claims)
    with pytest.raises(FatalError, match="another run lies at"):
        second()


@pytest.mark.parametrize("claims", [{}, {"_1": b"before"}, {"_1": b"before", "_2": b"ours"}])
def test_earlier_attempts_of_the_same_run_are_added_to(
    store: Path, second: Any, artifact: Make, claims: dict[str, bytes]
) -> None:
    _mirror(store, **claims)
    second().upload_artifact(artifact("result.json", b"{}", kind="result"))
    assert "p/result.json" in files_in(store)


@pytest.mark.parametrize(("kind", "path"), [("commit", "checkpoints/step-000001.json"), ("result", "result.json")])
def test_what_another_run_has_come_to_meanwhile_is_not_overwritten(
    store: Path, second: Any, artifact: Make, kind: str, path: str
) -> None:
    uploader = second()
    _mirror(store, _2=b"theirs")
    with pytest.raises(FatalError, match="another run lies at"):
        uploader.upload_artifact(artifact(path, b"ours", kind=kind))
    assert files_in(store) == ["p/attempts/2.json", "p/config/run.json"]
