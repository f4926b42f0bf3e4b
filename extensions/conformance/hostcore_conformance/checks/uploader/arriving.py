"""That what is uploaded arrives: every kind, every size and name, and a receipt that is true."""

from pathlib import Path
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.uploader.stage import PLACES, CheckedStore, FakeRun, ServedUploader, described
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import FatalError
from hostcore_hookspecs.uploader import UploadReceipt

_LARGE_BYTES: Final = 9 << 20


@check("uploader.uploads")
def uploads(subject: Subject) -> None:
    """An uploader opens, uploads a file, returns its place, and closes.

    The instance is made in the main thread; all its methods are called from other threads, as the host does it. A file
    of 3000 bytes is uploaded, and what comes back must be an UploadReceipt with the size of the file.

    Usual causes: settings of the example that lead nowhere, a folder or bucket that is not there, a client that belongs
    to the thread in which the constructor made it, and a return value that is forgotten.
    """
    if not subject.has("upload_artifact"):
        raise NotApplicable("it only wraps other uploaders, and nothing is copied to it")
    run = FakeRun(subject)
    with ServedUploader(subject, run) as uploader:
        artifact = run.one_of("checkpoint")
        receipt = uploader.upload(artifact)
        if receipt.size != artifact.size:
            raise ConformanceError(
                expected=f"a receipt with size = {artifact.size}, that of {artifact.relative_path}",
                got=repr(receipt.size),
                fix="Return the size of the object in bytes, as found at the destination after writing.",
            )
        uploader.close()


@check("uploader.content", variants=("small", "empty", "large"), requires=("uploader.uploads",))
def content_arrives(subject: Subject, variant: str) -> None:
    """The receipt's URI leads to the file, byte for byte, and the receipt has its size and SHA-256.

    small: 3000 bytes without a pattern. empty: a file of 0 bytes, as a log may be. large: 9 MiB, which many clients
    send in parts; a harness may set with large_bytes how many bytes it takes for that. Objects are read through read()
    of the harness; file:// and memory:// are read without one.

    Usual causes: text mode, a part that is sent twice or left out, a client that sends nothing for an empty body, and a
    receipt with a path in place of a URI.
    """
    run = FakeRun(subject)
    size = {"small": 3000, "empty": 0, "large": int(getattr(subject.harness, "large_bytes", _LARGE_BYTES))}[variant]
    content = run.noise(size)
    with ServedUploader(subject, run) as uploader:
        artifact = run.file(f"checkpoints/step-000020/{variant}.bin", content)
        receipt = uploader.upload(artifact, what=f"a file of {size} bytes")
        CheckedStore(subject).require(receipt, artifact, content)


@check("uploader.takes", variants=tuple(PLACES), requires=("uploader.content",))
def takes(subject: Subject, kind: str) -> None:
    """An artifact of this kind is uploaded: checkpoints, their commit records, samples, logs, configuration, plots.

    One file of each kind, with the path and the content that such a file has, is uploaded as the host describes it:
    those of a checkpoint or a sample have a step, all others have None.

    Usual causes: step is taken for granted, a folder for each kind of which one was forgotten, and kinds that are left
    out without a receipt: what an uploader does not want it still has to be asked for in its documentation.
    """
    run = FakeRun(subject)
    with ServedUploader(subject, run) as uploader:
        artifact = run.one_of(kind)
        receipt = uploader.upload(artifact, what=f"{artifact.relative_path} of the kind {kind}, step {artifact.step}")
        content = Path(artifact.path).read_bytes()
        CheckedStore(subject).require(receipt, artifact, content, when=f", of the kind {kind}")


@check("uploader.later_kind", requires=("uploader.content",))
def later_kind(subject: Subject) -> None:
    """An artifact of a kind that a later version of the contract adds is uploaded like all others.

    Kinds are added in minor versions of the contract. An uploader that was written before is given files of the new
    kind, too, and puts them at their path.

    Usual causes: a table of folders indexed by artifact.kind, and `case _: raise`.
    """
    run = FakeRun(subject)
    content = run.noise(2000)
    with ServedUploader(subject, run) as uploader:
        artifact = run.file("profiles/step-000020.trace", content, kind="profile")
        receipt = uploader.upload(artifact, what="an artifact of a kind of a later contract, profile")
        CheckedStore(subject).require(receipt, artifact, content, when=", of the kind profile")


#: Names that are no trouble on a disk, each with another that it may be mistaken for, and whether an
#: uploader may refuse it.
_NAMES: Final[dict[str, tuple[str, str, bool]]] = {
    "space": ("with space/a b.txt", "with space/a+b.txt", False),
    "unicode": ("größe 日本語 🙂.txt", "gr??e ??? ?.txt", False),
    "plus": ("a+b&c=d;e,f.txt", "a b&c=d;e,f.txt", False),
    "percent": ("100%/a%20b.txt", "100%/a b.txt", True),
    "hash": ("a.txt#1", "a.txt", True),
    "question": ("a.txt?version=2", "a.txt", True),
    "dots": ("a..b/.hidden/...txt", "a..b/.hidden/..txt", False),
    "long": (f"{'folder/' * 12}{'n' * 120}.txt", f"{'folder/' * 12}{'n' * 119}.txt", False),
}


@check("uploader.names", variants=tuple(_NAMES), requires=("uploader.content",))
def names(subject: Subject, variant: str) -> None:
    """A file keeps its name, whatever characters that has, and is not mistaken for another.

    Two files whose names are the same to a careless uploader are uploaded: "a b" and "a+b", "a%20b" and "a b", "a#1"
    and "a". Both must be there, each with its own content. A name with %, # or ? that the store cannot hold may be
    refused with a FatalError; storing it under another name is what loses files.

    Usual causes: URLs that are put together without urllib.parse.quote, or with quote twice; names cut at # or ?;
    letters that are replaced by ? or _; and folders that are not made.
    """
    name, other, may_refuse = _NAMES[variant]
    run, store = FakeRun(subject), CheckedStore(subject)
    with ServedUploader(subject, run) as uploader:
        kept: list[tuple[UploadReceipt, str, bytes]] = []
        for number, relative in enumerate((other, name)):
            content = run.noise(500, seed=number)
            artifact = run.file(f"samples/step-000020/{relative}", content, kind="sample")
            came: Any = uploader.attempt("upload_artifact", artifact) if may_refuse else uploader.upload(artifact)
            if may_refuse and isinstance(came, FatalError):
                continue
            receipt = uploader.upload(artifact) if isinstance(came, BaseException) else came
            kept.append((receipt, relative, content))
        for receipt, relative, content in kept:
            beside = name if relative == other else other
            fix = "Quote every character of the path that the store takes for something else, once: urllib.parse.quote."
            store.require_content(receipt.uri, content, f"the file {relative!r}, uploaded beside {beside!r}", fix=fix)


@check("uploader.own_copy", requires=("uploader.content",))
def own_copy(subject: Subject) -> None:
    """An uploaded file stays in the store when the run directory goes, and the run's own file is left alone.

    After the upload the file must be as it was. Then it is overwritten in place and removed, as happens to checkpoints
    that are pruned and logs that grow; the copy in the store must not change with it.

    Usual causes: a file that is moved (os.rename, shutil.move) in place of being copied, a hard link or a symbolic link
    to it, and a client that reads it later than upload_artifact returns.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    content = run.noise(3000)
    with ServedUploader(subject, run) as uploader:
        artifact = run.file(PLACES["checkpoint"], content)
        source = Path(artifact.path)
        receipt = uploader.upload(artifact)
        left = source.read_bytes() if source.is_file() else None
        if left != content:
            raise ConformanceError(
                expected=f"the file of the run as it was after its upload: {described(content)}",
                got=described(left) if left is not None else f"{source.name} gone",
                fix="Copy the file; it belongs to the run.",
            )
        with source.open("r+b") as file:
            file.write(run.noise(3000, seed=1))
        source.unlink()
        what = f"{artifact.relative_path}, after the run has changed and removed its own file"
        store.require_content(receipt.uri, content, what, fix="Copy the file's bytes before upload_artifact returns.")


@check("uploader.true_receipt", variants=("changed", "truncated"), requires=("uploader.content",))
def true_receipt(subject: Subject, variant: str) -> None:
    """A receipt has what was found at the destination, and does not repeat the fields of the artifact.

    The file on the disk differs from the artifact's fields: as long, but with other bytes, or half as long. So it is
    after a disk error, or when a transfer is cut short. The uploader may raise; or it returns a receipt with what is
    really there, and the host sees the difference. A receipt with the size and the SHA-256 of the artifact's fields
    means that all is well, and the only copy of a checkpoint is lost.

    Mend it by reading back what was written (or taking the size and checksum that the store computes), and putting
    those into the receipt. With sha256 = "" the host compares the size alone.
    """
    run = FakeRun(subject)
    content = run.noise(3000)
    with ServedUploader(subject, run) as uploader:
        artifact = run.file(PLACES["checkpoint"], content)
        damaged = run.noise(3000, seed=1) if variant == "changed" else content[:1500]
        Path(artifact.path).write_bytes(damaged)
        came = uploader.attempt("upload_artifact", artifact)
        if not isinstance(came, UploadReceipt):
            return
        lies = came.sha256 == artifact.sha256 if variant == "changed" else came.size == artifact.size
        if lies:
            field, said = ("sha256", came.sha256[:12] + "…") if variant == "changed" else ("size", came.size)
            raise ConformanceError(
                expected=f"a receipt of {described(damaged)}, which is what there was to upload, or an error",
                got=f"a receipt with {field} = {said}, which is the artifact's own field",
                fix="Look at the destination after writing, and return the size and the SHA-256 of what is there.",
            )


@check("uploader.checksum", level="should", requires=("uploader.content",))
def checksum(subject: Subject) -> None:
    """A receipt has the SHA-256 of what was found at the destination.

    Without it (sha256 = "") the host can compare sizes only, and a damaged copy of the same size counts as a good one.

    Mend it by reading the object back, or by taking the checksum that the store computes of what it has.
    """
    run = FakeRun(subject)
    with ServedUploader(subject, run) as uploader:
        receipt = uploader.upload(run.one_of("checkpoint"))
        if not receipt.sha256:
            raise ConformanceError(
                expected="a receipt with the SHA-256 of what was found at the destination",
                got='sha256 = ""',
                fix="Read the object back and hash it, or take the checksum that the store computes.",
            )


@check("uploader.missing", requires=("uploader.uploads",))
def missing(subject: Subject) -> None:
    """A file that is gone is an error, and no receipt.

    A checkpoint may be pruned right before it would have been read. The uploader must raise, whatever it likes; an
    empty object under the name would be the worst.

    Usual causes: `except OSError: pass`, and a list of files that is made with glob and happens to be empty.
    """
    run = FakeRun(subject)
    with ServedUploader(subject, run) as uploader:
        artifact = run.one_of("checkpoint")
        Path(artifact.path).unlink()
        came = uploader.attempt("upload_artifact", artifact)
        if not isinstance(came, BaseException):
            raise ConformanceError(
                expected=f"upload_artifact to raise, since {artifact.relative_path} is gone",
                got=repr(came),
                fix="Let FileNotFoundError through.",
            )
