"""What is in the store, as its author's harness shows it, or as fsspec finds it."""

import hashlib
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.harness_method import harness_method
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.uploader import Artifact, UploadReceipt

#: What fsspec reads without being told how.
_KNOWN_TO_FSSPEC: Final = ("file", "local", "memory")

#: A URI that is encoded throughout, as ``Path.as_uri`` makes it.
_ENCODED: Final = re.compile(r"(?:[\w.~:/@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*", re.ASCII)

_WRITE_ALL: Final = (
    "See that the receipt's uri is where the object is, and that all bytes, and no others, are written there."
)


class Store:
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
        harness_method(self._subject, "read", f"so that the kit can read {uri}")
        raise AssertionError("unreachable")

    def objects(self) -> Sequence[str]:
        """The URIs of all that is visible.

        :raises NotApplicable: The harness cannot tell.
        """
        found: Sequence[str] = harness_method(self._subject, "objects", "so that the kit can see what is visible")()
        return found

    def require(
        self, receipt: UploadReceipt, artifact: Artifact, content: bytes, *, when: str = "", fix: str = _WRITE_ALL
    ) -> None:
        """See that an artifact is where its receipt says, and what that says of it.

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
    """See that a receipt says what is there.

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
