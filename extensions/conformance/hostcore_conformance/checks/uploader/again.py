"""Uploading again: the same, something else, at once, and of another run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.uploader.stage import PLACES, CheckedStore, FakeRun, ServedUploader, described
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_REPLACE: Final = (
    "Replace what is there by the whole new file, unless its size and its SHA-256 are those of the artifact."
)
_IN_VARIABLES: Final = (
    "Keep what belongs to one file in variables, not in self, and use no client that is not made for several threads."
)


@check("uploader.repeats", requires=("uploader.content",))
def repeats(subject: Subject) -> None:
    """An artifact that was uploaded before can be uploaded again, and is as whole as before.

    The same artifact is uploaded twice, the second time by a new instance: so it is after a crash, when the process
    could not write down that it had arrived. The second receipt must be as true as the first.

    Usual causes: open(path, "xb"), a store that refuses to overwrite, and a part that is appended to what is there.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    content = run.noise(3000)
    artifact = run.file(PLACES["checkpoint"], content)
    for time in ("", ", uploaded a second time"):
        with ServedUploader(subject, run) as uploader:
            receipt = uploader.upload(artifact, what=f"{artifact.relative_path}{time}")
            store.require(receipt, artifact, content, when=time)


@check("uploader.existed", level="should", requires=("uploader.repeats",))
def existed(subject: Subject) -> None:
    """An existing copy is not written again, and the receipt has existed = True.

    After the first upload a new instance uploads the same artifact, and its receipt should have existed = True; of the
    first, False. A checkpoint of many gigabytes that is sent twice costs the time in which the next one should go.

    Mend it by looking first: size and checksum of what is under the name.
    """
    run = FakeRun(subject)
    artifact = run.one_of("checkpoint")
    said = []
    for _ in range(2):
        with ServedUploader(subject, run) as uploader:
            said.append(uploader.upload(artifact).existed)
    if said != [False, True]:
        raise ConformanceError(
            expected="existed = False in the first receipt, and True in that of the same artifact again",
            got=f"{said[0]} and {said[1]}",
            fix="Look before writing: if the object has the size and the SHA-256 of the artifact, return a receipt with"
            " existed=True.",
        )


@check("uploader.replaces", variants=("longer", "shorter", "same_size"), requires=("uploader.content",))
def replaces(subject: Subject, variant: str) -> None:
    """Another file under the same path takes the place of the one that is there.

    Logs grow and are uploaded again under their name, a result of one attempt follows that of the other, and the
    tensors of two checkpoints of the same step have the same size. After the second upload there must be the second
    content, all of it and nothing else, and the receipt must have existed = False.

    Usual causes: "it exists, so it is there", comparing sizes alone, and writing over the old file without cutting it.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    size = {"longer": 5000, "shorter": 1000, "same_size": 3000}[variant]
    old, new = run.noise(3000), run.noise(size, seed=1)
    with ServedUploader(subject, run) as uploader:
        uploader.upload(run.file("logs/events.jsonl", old, kind="log"))
        artifact = run.file("logs/events.jsonl", new, kind="log")
        receipt = uploader.upload(artifact)
        store.require(receipt, artifact, new, when=f", which was {len(old)} bytes long before", fix=_REPLACE)
        if receipt.existed:
            raise ConformanceError(
                expected="existed = False: there was another file of that name",
                got="existed = True",
                fix="Compare the SHA-256 of what is there, not its name or its size.",
            )


@check("uploader.separates_runs", requires=("uploader.content",))
def separates_runs(subject: Subject) -> None:
    """The files of two runs do not get in each other's way.

    The same path of two runs is uploaded, with different content, by two instances with the same settings. Both must
    be there. An artifact belongs at <base>/<prefix>/<relative_path>, and ctx.prefix has the run's id.

    Usual causes: the prefix is left out, and state in the module or in the class.
    """
    runs, store = [FakeRun(subject), FakeRun(subject)], CheckedStore(subject)
    contents = [run.noise(3000) for run in runs]
    with ServedUploader(subject, runs[0]) as first, ServedUploader(subject, runs[1]) as second:
        receipts = [
            uploader.upload(run.file("result.json", content, kind="result"))
            for uploader, run, content in zip((first, second), runs, contents, strict=True)
        ]
    fix = "Put an artifact at <base>/<ctx.prefix>/<relative_path>, and keep state in the instance."
    for receipt, run, content in zip(receipts, runs, contents, strict=True):
        store.require_content(receipt.uri, content, f"result.json of {run.run_id}, one of two runs", fix=fix)


@check("uploader.threads", requires=("uploader.content",))
def threads(subject: Subject) -> None:
    """Several threads upload at once, and every file arrives as it is.

    Twelve files of 300 kB, in three folders that are not there yet, are uploaded by four threads, as the host does it;
    Python switches between threads a thousand times as often as usual. Each must be there, with its own
    content and receipt.

    Usual causes: what belongs to one file is kept in self; a connection that is not made for several threads; a
    temporary name that two share; os.makedirs without exist_ok=True.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    contents = {f"samples/step-{at % 3:06}/{at}.bin": run.noise(300_000 + at, seed=at) for at in range(12)}
    with ServedUploader(subject, run) as uploader, _many_switches():
        artifacts = [run.file(path, content, kind="sample") for path, content in contents.items()]
        receipts = uploader.upload_at_once(artifacts)
    for receipt, (path, content) in zip(receipts, contents.items(), strict=True):
        if receipt.size != len(content):
            raise ConformanceError(
                expected=f"a receipt for {path} of {described(content)}, uploaded beside eleven others",
                got=f"size = {receipt.size}: that of another file",
                fix=_IN_VARIABLES,
            )
        store.require_content(receipt.uri, content, f"{path}, uploaded beside eleven others", fix=_IN_VARIABLES)


@contextmanager
def _many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 1000)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
