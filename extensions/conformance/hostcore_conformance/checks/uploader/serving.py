"""Opening and closing again, and the end of the process."""

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.uploader.stage import PLACES, CheckedStore, FakeRun, ServedUploader
from hostcore_conformance.process.isolated import ends_after
from hostcore_conformance.subject import Subject


@check("uploader.reopens", requires=("uploader.content",))
def reopens(subject: Subject) -> None:
    """The same instance can be opened again after it was closed, for the next attempt of the run.

    A run that is restarted in the same process opens its uploaders again. What is uploaded then must arrive.

    Usual causes: a client that the constructor makes and close closes, or a pool of threads that is shut down. Make in
    open all that close takes away.
    """
    run, store = FakeRun(subject), CheckedStore(subject)
    with ServedUploader(subject, run) as uploader:
        uploader.upload(run.one_of("config"))
        uploader.close()
        fix = "Make in open() all that close() takes away."
        uploader.require("open", run.ctx, what="the second attempt, after close()", fix=fix)
        content = run.noise(3000)
        artifact = run.file(PLACES["checkpoint"], content)
        receipt = uploader.upload(artifact, what=f"{artifact.relative_path}, after close() and open()")
        store.require(receipt, artifact, content, when=", after close() and open()")
        uploader.close()


@check("uploader.closes", requires=("uploader.uploads",))
def closes(subject: Subject) -> None:
    """An uploader that was given nothing can be closed.

    A run may end before there is a file to upload. The host calls open and then close; an exception of close is
    recorded in the run's log.

    Usual causes: close uses what the first upload makes.
    """
    with ServedUploader(subject, FakeRun(subject)) as uploader:
        uploader.close()


@check(
    "uploader.closes_always",
    level="should",
    variants=("twice", "without_open"),
    requires=("uploader.uploads",),
    aliases={
        "uploader.closes_always[twice]": "plugin.closes_twice",
        "uploader.closes_always[without_open]": "plugin.closes_unopened",
    },
)
def closes_always(subject: Subject, variant: str) -> None:
    """Closing does no harm, whatever was before: an open that has failed, or another close.

    The host closes once, and only what it has opened. But a test, an ExitStack or a wrapper may close twice, or after
    an open that raised, and what they report then should be their own error and not a follow-up of close.

    Mend it by setting what close uses to None in the constructor, and again in close.
    """
    run = FakeRun(subject)
    with ServedUploader(subject, run, opened=variant == "twice") as uploader:
        if variant == "twice":
            uploader.upload(run.one_of("config"))
            uploader.close()
        what = "an uploader that is closed already" if variant == "twice" else "an uploader that was not opened"
        uploader.require("close", what=what, fix="Set what close() uses to None in the constructor and in close().")


@check("uploader.exits", requires=("uploader.uploads",))
def exits(subject: Subject) -> None:
    """A process that has closed its uploader ends.

    A process of its own uploads a file, closes the uploader and comes to its end, as `hostcore run` does. It must end
    within ten seconds, with exit code 0.

    Usual causes: a pool of threads or an event loop that close does not stop.
    """
    run = FakeRun(subject)
    ctx = attrs.evolve(run.ctx, is_canceled=bool)  # which returns False, and can be pickled
    ends_after(subject, [("open", (ctx,)), ("upload_artifact", (run.one_of("checkpoint"),)), ("close", ())])
