"""The files of a run that never was, as the host describes them to uploaders."""

import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any, Final

from hostcore.checkpoints.record import CommitRecord, CommittedFile
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.uploader import Artifact, UploadContext

#: The kinds of artifacts, with the place where one of each lies below the run directory.
PLACES: Final = {
    "checkpoint": "checkpoints/step-000020/model.safetensors",
    "commit": "checkpoints/step-000020.json",
    "sample": "samples/step-000020/0/sample.txt",
    "log": "logs/events.jsonl",
    "config": "attempts/1.json",
    "plot": "plots/loss.png",
    "result": "result.json",
}
_OF_A_STEP: Final = ("checkpoint", "commit", "sample")


class Cargo:
    """The artifacts of one run.

    :param subject: For a folder, and for the base of its harness, if that has one (``base_uri``).
    """

    def __init__(self, subject: Subject) -> None:
        fixtures = EventFixtures(subject)
        fixtures.whole()
        self.run_id = fixtures.run_id
        #: Where the run belongs below any base.
        self.prefix = f"{self.run_id}/framework=conformance"
        # The content lies outside of the run directory, and under other names.
        self._spool = subject.folder()
        self._run_dir = fixtures.ctx.run_dir
        self._base_uri: str | None = getattr(subject.harness, "base_uri", None)
        self._numbers = itertools.count(1)
        #: What the uploader is answered when it asks whether to give up: at most so many times no.
        self.patience: float = float("inf")
        #: How often it has asked.
        self.asked = 0

    @property
    def ctx(self) -> UploadContext:
        """What the uploader is told about the run."""
        job = Job(run_id=self.run_id, trainer="conformance")
        return UploadContext(
            run_id=self.run_id,
            job=job,
            run_dir=self._run_dir,
            base_uri=self._base_uri,
            prefix=self.prefix,
            is_canceled=self._is_canceled,
        )

    def _is_canceled(self) -> bool:
        self.asked += 1
        return self.asked > self.patience

    def noise(self, size: int, seed: int = 0) -> bytes:
        """Content without any pattern, which no other run has."""
        return random.Random(f"{self.run_id}/{seed}").randbytes(size)  # noqa: S311 - nothing secret

    def file(self, relative_path: str, content: bytes, *, kind: str = "checkpoint", **changes: Any) -> Artifact:
        """An artifact with some content.

        :param changes: What it says of itself, right or not.
        """
        path = self._spool / f"{next(self._numbers):04}"
        path.write_bytes(content)
        of_a_step = {"step": 20, "final": kind != "sample"} if kind in _OF_A_STEP else {}
        described = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), **of_a_step, **changes}
        return Artifact(kind=kind, path=str(path), relative_path=relative_path, **described)

    def one_of(self, kind: str) -> Artifact:
        """An artifact of a kind, with the content that such a file has."""
        return self.file(PLACES[kind], self._content(kind), kind=kind)

    def _content(self, kind: str) -> bytes:
        match kind:
            case "commit":
                content = self.noise(3000)
                file = CommittedFile(
                    path=Path(PLACES["checkpoint"]).name, size=len(content), sha256=hashlib.sha256(content).hexdigest()
                )
                return CommitRecord(step=20, epoch=1, final=True, attempt=1, files=(file,)).to_json()
            case "sample":
                return f"größe 日本語 {self.run_id}\n".encode()
            case "log":
                return Path(self._run_dir, "logs", "events.jsonl").read_bytes()
            case "config" | "result":
                return json.dumps({"run_id": self.run_id, "status": "succeeded", "step": 40, "error": None}).encode()
            case _:
                return self.noise(3000)
