"""Checks of uploads that do not come to their end."""

from pathlib import Path
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.uploader.stage import CheckedStore, FakeRun, ServedUploader
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.secret_search import all_that_it_says, no_secret, require_hidden, secrets_of
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import FatalError
from hostcore_hookspecs.uploader import UploadReceipt

_SIZE: Final = 9 << 20
_WHOLE: Final = (
    "Write under another name, or with a request that the store takes as a whole; give the object its name when all of"
    " it is there."
)
_WHY: Final = "after which the next transfer breaks off"


@check("uploader.failed", variants=("replacing", "new"), requires=("uploader.content",))
def failed(subject: Subject, variant: str) -> None:
    """A transfer that breaks off leaves the old object or none, and the next try succeeds.

    The harness has the next transfer fail in the middle (fail_next()): a connection that is lost, a disk that is full.
    The upload may raise, but not FatalError, after which the host would not try again; or it tries again itself, and
    succeeds. Where it raises, there must be the whole old object under the name (replacing), or none (new: seen with
    objects() of the harness). Uploaded once more, the file must arrive.

    Usual causes: writing under the final name; FatalError for a lost connection; a broken connection that is used
    again. Write under another name, or with a request that the store takes as a whole, and rename when all is there.
    """
    fail_next: Any = subject.harness_method("fail_next", _WHY)
    run, store = FakeRun(subject), CheckedStore(subject)
    old, new = run.noise(3000), run.noise(_SIZE, seed=1)
    path = "checkpoints/step-000020/failed.bin"
    visible = set(store.objects()) if variant == "new" else set()
    with ServedUploader(subject, run) as uploader:
        before = uploader.upload(run.file(path, old)).uri if variant == "replacing" else ""
        artifact = run.file(path, new)
        fail_next()
        came = uploader.attempt("upload_artifact", artifact)
        if isinstance(came, FatalError):
            raise ConformanceError(
                expected="TransientError, or any other error that is not fatal, for a transfer that broke off",
                got=subject.in_words(came),
                fix="After a FatalError the host does not try this file again. Keep it for what no other try can mend,"
                " such as missing rights.",
            ) from came
        if isinstance(came, BaseException):
            when = "after a transfer that broke off"
            if before:
                store.require_content(before, old, f"the file that was there before, {when}", fix=_WHOLE)
            else:
                _require_nothing_new(store, visible, path, when=when)
            came = uploader.upload(artifact, what=f"{path}, tried again after a transfer that broke off")
        if isinstance(came, UploadReceipt):
            store.require(came, artifact, new, when=", after a transfer that broke off")


def _require_nothing_new(store: CheckedStore, before: set[str], path: str, *, when: str) -> None:
    """See that nothing of a name is there that was not there before."""
    visible = [uri for uri in store.objects() if uri not in before and uri.endswith(path)]
    if visible:
        found = store.read(visible[0])
        raise ConformanceError(
            expected=f"nothing under the name {path} {when}",
            got=f"{visible[0]}, with {len(found or b'')} of {_SIZE} bytes",
            fix=_WHOLE,
        )


@check("uploader.canceled", requires=("uploader.content",))
def canceled(subject: Subject) -> None:
    """An upload that is given up because the run is ending leaves the old object whole.

    While 9 MiB are uploaded over a small file, is_canceled becomes true after it was asked once. The uploader may go on
    to the end, or raise; then the small file must be there as before.

    Usual causes: writing over the file in place, and `return` with a receipt of what was written so far.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    old, new = run.noise(3000), run.noise(_SIZE, seed=1)
    path = "checkpoints/step-000020/canceled.bin"
    with ServedUploader(subject, run) as uploader:
        before = uploader.upload(run.file(path, old))
        run.asked, run.patience = 0, 1
        artifact = run.file(path, new)
        came = uploader.attempt("upload_artifact", artifact)
        run.patience = float("inf")
        if isinstance(came, UploadReceipt):
            store.require(came, artifact, new, when=", although the run was ending")
        else:
            store.require_content(before.uri, old, "the file that was there before an upload was given up", fix=_WHOLE)


@check("uploader.gives_up", level="should", requires=("uploader.content",))
def gives_up(subject: Subject) -> None:
    """A long transfer is given up when the run is ending.

    is_canceled is true from the beginning, and 9 MiB are to be uploaded: the uploader should ask, and raise something
    else than FatalError. A preempted run has seconds left, and needs them for what matters: the host then lists the
    uploads that are not done.

    Mend it by asking ctx.is_canceled() before each piece of a few megabytes, and raising TransientError.
    """
    run = FakeRun(subject)
    with ServedUploader(subject, run) as uploader:
        run.patience = 0
        came = uploader.attempt("upload_artifact", run.file("checkpoints/step-000020/late.bin", run.noise(_SIZE)))
        asked = f"calls of is_canceled: {run.asked}"
        if not isinstance(came, BaseException) or isinstance(came, FatalError):
            raise ConformanceError(
                expected="upload_artifact to raise TransientError for 9 MiB while is_canceled() is true",
                got=f"{subject.in_words(came) if isinstance(came, BaseException) else 'a receipt'}; {asked}",
                fix="Ask ctx.is_canceled() before each piece of a long transfer, and raise TransientError.",
            )


@check("uploader.stays_inside", level="should", variants=("above", "absolute"), requires=("uploader.content",))
def stays_inside(subject: Subject, variant: str) -> None:
    """A path that leads elsewhere is refused, or taken as a name; nothing outside of the run is touched.

    The host sends no such paths. But what it does not send today a bug, or a plugin that writes files of its own, may
    send tomorrow. above: "../../<other run>/framework=conformance/result.json" must not replace the file of another
    run. absolute: a path that begins with / must not be written there.

    Usual causes: os.path.join, which drops all that is before an absolute path, and ".." that is resolved by the file
    system. Refuse what is absolute or has ".." in it.
    """
    run, other, store = FakeRun(subject), FakeRun(subject), CheckedStore(subject)
    content = run.noise(1000)
    with ServedUploader(subject, other) as uploader:
        receipt = uploader.upload(other.file("result.json", content, kind="result"))
    elsewhere = subject.folder() / "escaped.bin"
    hostile = f"../../{other.prefix}/result.json" if variant == "above" else str(elsewhere)
    with ServedUploader(subject, run) as uploader:
        uploader.attempt("upload_artifact", run.file(hostile, run.noise(1000, seed=1), kind="result"))
    fix = "Refuse a relative_path that is absolute or has .. in it, with FatalError."
    if elsewhere.exists():
        raise ConformanceError(
            expected="no file outside of the store", got=f"one at the absolute path {Path(hostile).name}", fix=fix
        )
    if store.read(receipt.uri) != content:
        raise ConformanceError(
            expected=f"result.json of another run as it was, at {receipt.uri}",
            got=f"the content of an artifact with the path {hostile}",
            fix=fix,
        )


@check("uploader.hides_secrets", requires=("uploader.uploads",), capability=no_secret)
def hides_secrets(subject: Subject) -> None:
    """No secret of the settings is in a receipt's URI, nor in what the uploader raises.

    The secrets are those that the example's settings refer to ({"$secret": "env:NAME"}). They are looked for in the
    URI of a receipt, and, with fail_next() of the harness, in the message and hint of what is raised when a transfer
    breaks off: both are in the run's log for everybody to read.

    Usual causes: a URL with a signature or a password, and headers in an error message.
    """
    secrets, run = secrets_of(subject), FakeRun(subject)
    fail_next: Any = getattr(subject.harness, "fail_next", None)
    if subject.harness is not None and not hasattr(subject.harness, "fail_next"):
        raise NotApplicable(f"the harness has no fail_next(), {_WHY}", wants_example=True)
    with ServedUploader(subject, run) as uploader:
        texts = {"the receipt": repr(uploader.upload(run.one_of("checkpoint")))}
        if callable(fail_next):
            fail_next()
            came = uploader.attempt("upload_artifact", run.file("checkpoints/step-000020/secret.bin", run.noise(_SIZE)))
            if isinstance(came, BaseException):
                texts["what upload_artifact raised"] = all_that_it_says(came)
    require_hidden(secrets, texts)
