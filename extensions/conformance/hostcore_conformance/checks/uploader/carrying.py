"""An uploader, served as the host serves it: its methods are called from threads, none of which is the main one."""

from typing import TYPE_CHECKING, Any, Final

from hostcore_conformance.call_thread import CallThread, finished, in_words
from hostcore_conformance.checks.uploader.cargo import Cargo
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.uploader import Artifact, UploadReceipt

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

#: What the host does at once.
LANES: Final = 4


class Carrying:
    """An instance of the uploader, opened for a run. A context manager; leaving it closes the uploader.

    :param opened: Whether it is opened.
    """

    def __init__(self, subject: Subject, cargo: Cargo, *, opened: bool = True) -> None:
        self._subject = subject
        self._cargo = cargo
        component = subject.component()
        hooks = subject.hooks(component)
        self._methods: dict[str, Callable[..., Any] | None] = {
            name: hooks.bind(name, of=component) for name in ("open", "upload_artifact", "close")
        }
        self._threads = [CallThread(subject) for _ in range(LANES)]
        self._is_open = False
        if opened:
            self.open()

    def __enter__(self) -> "Carrying":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self.attempt("close")
        for thread in self._threads:
            thread.__exit__()

    def attempt(self, method: str, *arguments: Any) -> Any:
        """Call a method; what it has returned or raised.

        :raises ConformanceError: It does not come back.
        """
        bound = self._methods[method]
        try:
            return self._threads[0].call(method, bound, *arguments) if bound else None
        except ConformanceError:
            self._is_open = False  # nothing more can be called in this thread
            raise
        except BaseException as error:  # noqa: BLE001 - for the check to judge, SystemExit too
            return error

    def require(self, method: str, *arguments: Any, fix: str, what: str = "") -> Any:
        """Call a method, which must not raise; what it has returned.

        :param what: What it is called with, in words.
        :raises ConformanceError: It does.
        """
        return self._returned(self.attempt(method, *arguments), method, fix=fix, what=what)

    def _returned(self, came: Any, method: str, *, fix: str, what: str) -> Any:
        if isinstance(came, BaseException):
            raise ConformanceError(
                expected=f"{method} to return{f' for {what}' if what else ''}",
                got=in_words(self._subject, came),
                fix=fix,
            ) from came
        return came

    def open(self) -> None:
        """Open it.

        :raises ConformanceError: It raises.
        """
        fix = "See that the example's settings fit the store that the harness has."
        self.require("open", self._cargo.ctx, fix=fix)
        self._is_open = True

    def close(self) -> None:
        """Close it.

        :raises ConformanceError: It raises.
        """
        self._is_open = False
        self.require("close", fix="close() is called after the last artifact; what it raises is told as a failure.")

    def upload(self, artifact: Artifact, *, what: str = "") -> UploadReceipt:
        """Upload an artifact, which must go well.

        :param what: The artifact in words, if there is more to say of it than its path.
        :raises ConformanceError: It does not.
        """
        return self._receipt(self.attempt("upload_artifact", artifact), artifact, what)

    def upload_at_once(self, artifacts: list[Artifact]) -> list[UploadReceipt]:
        """Upload artifacts from several threads at once, which must go well.

        :raises ConformanceError: It does not.
        """
        bound = self._methods["upload_artifact"]
        assert bound is not None
        calls = [self._threads[at % LANES].start(bound, artifact) for at, artifact in enumerate(artifacts)]
        receipts = []
        for call, artifact in zip(calls, artifacts, strict=True):
            what = f"{artifact.relative_path}, one of {len(artifacts)} in {LANES} threads"
            receipts.append(self._receipt(self._came(call), artifact, what))
        return receipts

    def _came(self, call: "Future[Any]") -> Any:
        try:
            return finished(self._subject, "upload_artifact", call)
        except ConformanceError:
            self._is_open = False
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            return error

    def _receipt(self, came: Any, artifact: Artifact, what: str) -> UploadReceipt:
        what = what or artifact.relative_path
        fix = "An uploader takes every file of a run. What it raises is in the run's log, and is tried again."
        receipt = self._returned(came, "upload_artifact", fix=fix, what=what)
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
