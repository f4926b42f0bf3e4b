"""A run directory filled by hand, uploads driven by hand, and a folder to upload to that fails as networks do."""

import hashlib
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.names import Claim
from hostcore.checkpoints.prune import retire
from hostcore.checkpoints.record import CommitRecord
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore.supervisor.delivery.calls import Intervals, QuickRetries
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_hookspecs import events
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

#: Longer than anything takes that is not broken, in threads of low priority on a machine that is busy.
PATIENCE_SECONDS = 120.0


def until(is_so: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


class Folder:
    """Copies artifacts into a folder: looks first, writes under a hidden name, renames, reads back.

    ``before(artifact)`` is called before anything is done and may raise or wait; ``after(artifact, receipt)`` when all
    is done, and what it returns is the receipt.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.Lock()
        #: How often a path was written, and in which order paths were completed.
        self.writes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.begun: list[str] = []
        self.artifacts: dict[str, Artifact] = {}
        self.opened: list[UploadContext] = []
        self.closed = 0
        self.at_once = self.most_at_once = 0
        self.before: Callable[[Artifact], object] = lambda _: None
        self.after: Callable[[Artifact, UploadReceipt], UploadReceipt] = lambda _, receipt: receipt
        self.on_open: Callable[[], object] = lambda: None

    def open(self, ctx: UploadContext) -> None:
        self.on_open()
        self.opened.append(ctx)

    def close(self) -> None:
        self.closed += 1

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        with self.lock:
            self.calls[artifact.relative_path] += 1
            self.begun.append(artifact.relative_path)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.before(artifact)
            return self.after(artifact, self._copy(artifact))
        finally:
            with self.lock:
                self.at_once -= 1

    def _copy(self, artifact: Artifact) -> UploadReceipt:
        target = self.root / artifact.relative_path
        existed = target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == artifact.sha256
        if not existed:
            target.parent.mkdir(parents=True, exist_ok=True)
            hidden = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
            hidden.write_bytes(Path(artifact.path).read_bytes())
            hidden.replace(target)
        content = target.read_bytes()
        with self.lock:
            self.writes[artifact.relative_path] += not existed
            self.order.append(artifact.relative_path)
            self.artifacts[artifact.relative_path] = artifact
        sha256 = hashlib.sha256(content).hexdigest()
        return UploadReceipt(uri=target.as_uri(), size=len(content), sha256=sha256, existed=existed)

    @property
    def files(self) -> set[str]:
        return {path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()}


class Gate:
    """Holds back the uploads of some paths while it is closed."""

    def __init__(self, folder: Folder, prefix: str) -> None:
        self._open = threading.Event()
        self._open.set()
        self._held = threading.Event()

        def before(artifact: Artifact) -> None:
            if artifact.relative_path.startswith(prefix) and not self._open.is_set():
                self._held.set()
                assert self._open.wait(PATIENCE_SECONDS)

        folder.before = before

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        """Until something is held back."""
        assert self._held.wait(PATIENCE_SECONDS)


#: What waits seconds in earnest is over in a moment here.
QUICK = UploadLimits(
    quick=QuickRetries(retries=0),
    intervals=Intervals(first_seconds=0.02, most_seconds=0.1),
    tick_seconds=0.02,
    lock_seconds=0.02,
)


@attrs.define(eq=False)
class Run:
    """A run directory, as its workers and its supervisor fill it."""

    directory: RunDirectory
    attempt: int = 1
    seq: int = 0

    def commit(self, step: int, *, content: str = "", files: int = 3, final: bool = False) -> CommitRecord:
        def fill(folder: Path) -> None:
            for number in range(files):
                (folder / f"part-{number}.bin").write_text(f"{step} {number} {content}" * 50)

        where = self.directory.checkpoints
        return commit(where, step=step, epoch=0, final=final, attempt=self.attempt, fill=fill)

    def saved(self, step: int, *, attempt: int | None = None) -> Event:
        payload = events.CheckpointSaved(path=f"checkpoints/step-{step:06d}", bytes=0, final=False)
        return self.event(payload, step, attempt=attempt)

    def sample(self, step: int, number: int = 0, *, content: str = "a picture") -> Event:
        folder = self.directory.samples / f"step-{step:06d}" / str(number)
        making = folder.with_name(f".{number}.writing")  # as the worker does it: there whole, or not at all
        making.mkdir(parents=True)
        (making / "sample.txt").write_text(content)
        making.rename(folder)
        return self.event(events.SampleSaved(path=f"samples/step-{step:06d}/{number}"), step)

    def event(self, payload: Any, step: int, *, attempt: int | None = None) -> Event:
        self.seq += 1
        src = (0, attempt or self.attempt, 0)
        return Event(seq=self.seq, time_ms=0, run_id="a", attempt=1, src=src, step=step, payload=payload)

    def retire(self, step: int) -> None:
        """As the worker does it."""
        retire([Claim(self.directory.checkpoints, step, self.attempt)])

    def remove(self, step: int) -> None:
        """As nobody should."""
        record = self.directory.checkpoints / f"step-{step:06d}.json"
        record.unlink()
        shutil.rmtree(record.with_suffix(""))

    def end(self) -> None:
        self.directory.result.write_text('{"status": "succeeded"}')

    @property
    def spooled(self) -> list[str]:
        return sorted(path.name for path in self.directory.spool.iterdir()) if self.directory.spool.exists() else []

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.directory.checkpoints.iterdir())


@attrs.define(eq=False)
class Driven:
    """Uploads, and what they have told."""

    uploads: Uploads
    run: Run
    told: list[events.Payload] = attrs.field(factory=list)

    def save(self, step: int, **options: Any) -> None:
        """Commit a checkpoint, and tell of it."""
        self.run.commit(step, **options)
        self.uploads.on_event(self.run.saved(step))

    def drain(self) -> None:
        until(self.uploads.is_drained)
        self.listen()

    def finish(self) -> None:
        self.uploads.finish(final=False)
        self.drain()
        self.uploads.finish(final=True)
        self.drain()

    def listen_for_a_while(self) -> None:
        """Until what should not begin would have begun."""
        for _ in range(20):
            self.listen()
            time.sleep(0.01)

    def listen(self) -> list[events.Payload]:
        self.told += self.uploads.drain_events()
        return self.told

    def of(self, kind: type, path: str | None = None) -> list[Any]:
        found = [one for one in self.listen() if isinstance(one, kind)]
        return found if path is None else [one for one in found if getattr(one, "path", None) == path]


#: ``driven(mirror)``: uploads to these folders.
Drive = Callable[..., Driven]


def context(run: Run) -> UploadContext:
    return UploadContext(
        run_id="a",
        attempt=run.attempt,
        run_dir=str(run.directory.path),
        base_uri=None,
        prefix="a/framework=t",
        is_canceled=lambda: False,
    )


def destination(folder: Folder, *, name: str = "folder", required: bool = False) -> Destination:
    return Destination(
        label=f"{name} (somewhere 1.0)",
        name=name,
        required=required,
        upload_artifact=folder.upload_artifact,
        open=folder.open,
        close=folder.close,
    )
