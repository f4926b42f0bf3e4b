"""Tools of the uploader checks: a run's files, an uploader as the host serves it, and the contents of its store."""

import hashlib
import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from hostcore.checkpoints.record import CommitRecord, CommittedFile
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.served import Served
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

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
#: What the host does at once.
THREADS: Final = 4
#: Protocols that fsspec reads without options.
_KNOWN_TO_FSSPEC: Final = ("file", "local", "memory")

#: A URI that is encoded throughout, as ``Path.as_uri`` makes it.
_ENCODED: Final = re.compile(r"(?:[\w.~:/@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*", re.ASCII)

_WRITE_ALL: Final = (
    "See that the receipt's uri is where the object is, and that all bytes, and no others, are written there."
)


class FakeRun:
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
        """Context of the uploader."""
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

        :param changes: Its other fields, right or not.
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


class ServedUploader(Served):
    """An instance of the uploader, in as many threads as the host has. Entering it opens the uploader.

    :param run: The run that it is opened for.
    :param opened: Whether it is opened.
    """

    def __init__(self, subject: Subject, run: FakeRun, *, opened: bool = True) -> None:
        super().__init__(subject, threads=THREADS)
        self._run = run
        self._opened = opened

    def __enter__(self) -> Self:
        if self._opened:
            self.require(
                "open", self._run.ctx, fix="See that the example's settings fit the store that the harness has."
            )
        return self

    def close(self) -> None:
        """Close it.

        :raises ConformanceError: It raises.
        """
        self.require("close", fix="close() is called after the last artifact; what it raises is recorded as a failure.")

    def upload(self, artifact: Artifact, *, what: str = "") -> UploadReceipt:
        """Upload an artifact, which must go well.

        :param what: The artifact in words, if its path is not enough.
        :raises ConformanceError: It does not.
        """
        return self._receipt(self.attempt("upload_artifact", artifact), what or artifact.relative_path)

    def upload_at_once(self, artifacts: Sequence[Artifact]) -> list[UploadReceipt]:
        """Upload artifacts from several threads at once, which must go well.

        :raises ConformanceError: It does not.
        """
        calls = [self.start("upload_artifact", one, thread=at % THREADS) for at, one in enumerate(artifacts)]
        return [
            self._receipt(
                self.outcome("upload_artifact", call),
                f"{artifact.relative_path}, one of {len(artifacts)} in {THREADS} threads",
            )
            for call, artifact in zip(calls, artifacts, strict=True)
        ]

    def _receipt(self, came: Any, what: str) -> UploadReceipt:
        fix = "An uploader takes every file of a run. What it raises is in the run's log, and is tried again."
        receipt = self.returned(came, "upload_artifact", fix=fix, what=what)
        if not isinstance(receipt, UploadReceipt):
            raise ConformanceError(
                expected=f"upload_artifact to return an UploadReceipt for {what}",
                got=repr(receipt)[:200],
                fix="Return hostcore_hookspecs.UploadReceipt(uri=…, size=…, sha256=…) with what was found there.",
            )
        if not isinstance(receipt.uri, str):
            raise ConformanceError(
                expected=f"a receipt for {what} whose uri is text", got=repr(receipt.uri), fix="Write str(…) around it."
            )
        return receipt


class CheckedStore:
    """The other side of an uploader."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def read(self, uri: str) -> bytes | None:
        """The bytes under a URI; None if there is nothing.

        :raises NotApplicable: Neither the harness nor fsspec can read it.
        """
        if callable(getattr(self._subject.harness, "read", None)):
            content: bytes | None = self._subject.harness.read(uri)
            return content
        if uri.partition("://")[0] in _KNOWN_TO_FSSPEC:
            import fsspec

            try:
                with fsspec.open(_decoded(uri), "rb") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None
        self._subject.harness_method("read", f"so that the kit can read {uri}")
        raise AssertionError("unreachable")

    def objects(self) -> Sequence[str]:
        """The URIs of all that is visible.

        :raises NotApplicable: The harness cannot list them.
        """
        found: Sequence[str] = self._subject.harness_method("objects", "so that the kit can see what is visible")()
        return found

    def require(
        self, receipt: UploadReceipt, artifact: Artifact, content: bytes, *, when: str = "", fix: str = _WRITE_ALL
    ) -> None:
        """See that an artifact is at the place of its receipt, and that the receipt is right.

        :raises ConformanceError: It is not.
        """
        self.require_content(receipt.uri, content, f"{artifact.relative_path}{when}", fix=fix)
        require_true(receipt, content, f"{artifact.relative_path}{when}")

    def require_content(self, uri: str, content: bytes, what: str, *, fix: str = _WRITE_ALL) -> None:
        """See what is under a URI.

        :raises ConformanceError: Something else.
        """
        found = self.read(uri)
        if found == content:
            return
        raise ConformanceError(
            expected=f"{described(content)} under {uri}, of {what}",
            got=described(found) if found is not None else "nothing there",
            fix=fix,
        )


def _decoded(uri: str) -> str:
    """A URI as fsspec takes it, which has no escapes, whether it has some or not."""
    return unquote(uri) if _ENCODED.fullmatch(uri) else uri


def require_true(receipt: UploadReceipt, content: bytes, what: str) -> None:
    """See that a receipt has the fields of the object that is there.

    :raises ConformanceError: It does not.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    for field, said, true in [("size", receipt.size, len(content)), ("sha256", receipt.sha256, sha256)]:
        if said != true and not (field == "sha256" and said == ""):
            raise ConformanceError(
                expected=f"a receipt for {what} with {field} = {true!r}, as the object has it",
                got=repr(said),
                fix="Return what was found at the destination after writing: the size in bytes, the SHA-256 in"
                ' lower-case hexadecimal or "".',
            )


def described(content: bytes) -> str:
    """Bytes in words: their number and SHA-256."""
    return f"{len(content)} bytes (SHA-256 {hashlib.sha256(content).hexdigest()[:12]}…)"
