"""A process that commits, uploads and retires as a run does, to be killed: ``upload_process.py RUN MIRROR ATTEMPT``.

It writes the steps whose events were heard to ``heard.txt`` and every object that it makes to ``made.txt``, beside the
mirror. With attempt 0 it commits nothing, and uploads what is left to the end.
"""

import hashlib
import os
import sys
import threading
import time
from pathlib import Path

from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.find import committed
from hostcore.checkpoints.prune import prune
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.subscription import Destination, prefix_of
from hostcore.supervisor.delivery.units import Inventory
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_hookspecs import events
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

STEPS = 4


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


class Slow:
    """Copies into a folder, in small steps, so that a kill finds it anywhere."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        target = self.root / artifact.relative_path
        content = Path(artifact.path).read_bytes()
        existed = target.exists() and target.read_bytes() == content
        if not existed:
            target.parent.mkdir(parents=True, exist_ok=True)
            hidden = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
            with hidden.open("wb") as file:
                for begin in range(0, len(content), 1000):
                    file.write(content[begin : begin + 1000])
                    time.sleep(0.001)
            hidden.replace(target)
            append(self.root.parent / "made.txt", f"{artifact.relative_path} {artifact.sha256}")
        there = target.read_bytes()
        sha256 = hashlib.sha256(there).hexdigest()
        return UploadReceipt(uri=target.as_uri(), size=len(there), sha256=sha256, existed=existed)


def main() -> None:
    directory, mirror, attempt = RunDirectory(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    uploads = Uploads(
        [Destination(label="slow", name="slow", upload_artifact=Slow(mirror).upload_artifact)],
        Inventory.of(directory),
        UploadContext(
            run_id="a",
            attempt=attempt or 99,
            run_dir=str(directory.path),
            base_uri=None,
            prefix=prefix_of("a", "t"),
            is_canceled=lambda: False,
        ),
    )
    uploads.start()
    while not uploads.has_begun:
        time.sleep(0.001)
    newest = max((record.step for record in committed(directory.checkpoints)), default=0)
    for step in range(newest + 1, newest + 1 + STEPS) if attempt else ():
        run_step(directory, uploads, step, attempt)
        append(mirror.parent / "heard.txt", str(step))
        prune(directory.checkpoints, keep=1, protect=(), only_retire=True)
        time.sleep(0.02)
    if not attempt:
        directory.result.write_text("{}")
        uploads.finish(final=True)
    while not uploads.is_drained():
        time.sleep(0.01)


def run_step(directory: RunDirectory, uploads: Uploads, step: int, attempt: int) -> None:
    def fill(folder: Path) -> None:
        for number in range(4):
            (folder / f"part-{number}.bin").write_bytes(f"{step} {number} ".encode() * 1500)

    commit(directory.checkpoints, step=step, epoch=0, final=False, attempt=attempt, fill=fill)
    payload = events.CheckpointSaved(path=f"checkpoints/step-{step:06d}", bytes=0, final=False)
    src = (0, attempt, 0)
    uploads.on_event(Event(seq=1, time_ms=0, run_id="a", attempt=attempt, src=src, step=step, payload=payload))


if __name__ == "__main__":
    main()
