"""Uploaders that are the reference uploader with one thing broken."""

import posixpath
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

from attrs import evolve
from reference_plugins.breaking import after, before, broken, instead, then
from reference_plugins.uploader import PIECE_BYTES, ReferenceUploader

from hostcore_hookspecs import Artifact, FatalError, TransientError, UploadReceipt

FOLDERS = {"checkpoint": "models", "commit": "models", "sample": "samples", "log": "logs"}
ALL_FOLDERS = {**FOLDERS, "config": "config", "plot": "plots", "result": "results"}


def _token(uploader: ReferenceUploader) -> str:
    token = uploader._settings.token
    return token.value if token else ""


# --- what arrives, and what is said of it -----------------------------------------------------------------------------

broken(
    globals(),
    ReferenceUploader,
    ReturnsNothing=after("upload_artifact", lambda: None),
    CountsInKilobytes=after("upload_artifact", lambda result: evolve(result, size=result.size // 1000)),
    SaysAPath=after("upload_artifact", lambda result: evolve(result, uri=urlsplit(result.uri).path)),
    NamesTheStep=before("upload_artifact", lambda artifact: f"step {artifact.step:06}"),
    KnowsSomeKinds=before("upload_artifact", lambda artifact: FOLDERS[artifact.kind]),
    KnowsAllKinds=before("upload_artifact", lambda artifact: ALL_FOLDERS[artifact.kind]),
    DoesNotQuote=instead(
        "url_of", lambda self, artifact: f"{self._settings.url}/{self._prefix}/{artifact.relative_path}"
    ),
    # Cuts names where a URL ends.
    QuotesTooLittle=after("url_of", lambda result: result.partition("%23")[0]),
    WritesAscii=instead(
        "url_of",
        lambda artifact, call: call(
            artifact=evolve(artifact, relative_path=artifact.relative_path.encode("ascii", "replace").decode())
        ),
    ),
    Moves=then("upload_artifact", lambda artifact: Path(artifact.path).unlink()),
    # Repeats in its receipt what it was told, whatever has arrived.
    RepeatsTheArtifact=after(
        "upload_artifact",
        lambda result, artifact: evolve(result, size=artifact.size, sha256=artifact.sha256),
    ),
    HasNoChecksum=after("upload_artifact", lambda result: evolve(result, sha256="")),
    SkipsTheEmpty=instead("put", lambda artifact, call: call() if artifact.size else None),
    WritesAlways=instead("is_there", lambda: False),
    LooksAtNames=instead("is_there", lambda size: size is not None),
    LooksAtSizes=instead("is_there", lambda size, artifact: size == artifact.size),
    LeavesOutThePrefix=instead("url_of", lambda self, artifact: f"{self._settings.url}/{artifact.relative_path}"),
    ResolvesPaths=instead(
        "url_of",
        lambda self, artifact: (
            f"{self._settings.url}/{quote(posixpath.normpath(f'{self._prefix}/{artifact.relative_path}'))}"
        ),
    ),
    PutsItsTokenIntoTheUri=after(
        "upload_artifact", lambda result, self: evolve(result, uri=f"{result.uri}?token={_token(self)}")
    ),
    # Has a thread that nobody stops; the kit kills its process.
    KeepsTheProcess=before("open", lambda: threading.Thread(target=time.sleep, args=(60,), daemon=False).start()),
)


class WritesText(ReferenceUploader):
    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        text = b"".join(super().pieces(artifact)).decode("utf-8", errors="replace")
        yield text.encode("utf-8")[: artifact.size]


class LosesTheLastPiece(ReferenceUploader):
    """Sends whole pieces of 8 MiB, and zeros for the rest."""

    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        content = b"".join(super().pieces(artifact))
        sent = len(content) // (8 << 20) * (8 << 20) or len(content)
        yield content[:sent] + bytes(len(content) - sent)


class PassesOverTheMissing(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except OSError:
            return UploadReceipt(uri=self.url_of(artifact), size=artifact.size)


# --- when there is something already, or somebody else ----------------------------------------------------------------


class RefusesToOverwrite(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        url = self.url_of(artifact)
        if self.look(url)[0] is not None:
            raise FileExistsError(url)
        return super().upload_artifact(artifact)


class WritesOver(ReferenceUploader):
    """Leaves what stands behind the end of what it writes."""

    def put(self, url: str, artifact: Artifact) -> None:
        self.put_part(url, Path(artifact.path).read_bytes(), 0)

    def put_part(self, url: str, part: bytes, at: int) -> None:
        headers = {"Content-Length": str(len(part)), "Content-Range": f"bytes {at}-{at + len(part) - 1}/*"}
        self.send("PUT", url, iter([part]), headers)


class HasOneArtifact(ReferenceUploader):
    """Keeps in ``self`` what belongs to one file."""

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        self._artifact = artifact
        return super().upload_artifact(artifact)

    def put(self, url: str, artifact: Artifact) -> None:
        time.sleep(0.05)
        super().put(url, self._artifact)


# --- when an upload does not come to its end, or should not begin -----------------------------------------------------


class WritesInPlace(WritesOver):
    """Writes large files piece by piece, under their name."""

    def put(self, url: str, artifact: Artifact) -> None:
        if artifact.size < PIECE_BYTES:
            ReferenceUploader.put(self, url, artifact)
            return
        for number, piece in enumerate(self.pieces(artifact)):
            self.put_part(url, piece, number * PIECE_BYTES)


class GivesUpForGood(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except TransientError as error:
            raise FatalError(error.message) from error


class NeverAsks(ReferenceUploader):
    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        with Path(artifact.path).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


class KeepsACopy(ReferenceUploader):
    """Copies each file to a folder first: a folder, or what the path says."""

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        copy = Path(artifact.path).parent / "copies" / artifact.relative_path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path(artifact.path).read_bytes())
        return super().upload_artifact(artifact)


class ShowsItsToken(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except TransientError as error:
            raise TransientError(f"{artifact.path}?token={_token(self)}") from error


# --- how they open, close and end -------------------------------------------------------------------------------------


class OpensOnce(ReferenceUploader):
    def __init__(self, *, settings: ReferenceUploader.Settings) -> None:
        super().__init__(settings=settings)
        self._pool = ThreadPoolExecutor(4)

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        return self._pool.submit(super().upload_artifact, artifact).result()

    def close(self) -> None:
        self._pool.shutdown()


class ClosesWhatWasUploaded(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        self._last = artifact
        return super().upload_artifact(artifact)

    def close(self) -> None:
        _ = f"the last one was {self._last.relative_path}"


class ClosesOnce(ReferenceUploader):
    def open(self, ctx: object) -> None:
        super().open(ctx)
        self._lock = threading.Lock()
        self._lock.acquire()

    def close(self) -> None:
        self._lock.release()


class ClosesWhatWasOpened(ClosesOnce):
    def close(self) -> None:
        if self._lock.locked():
            self._lock.release()
