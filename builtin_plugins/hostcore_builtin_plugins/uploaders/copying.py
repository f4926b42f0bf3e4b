"""How an artifact gets into a store: look, write if need be, and look again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hostcore_builtin_plugins.uploaders.content import Content, digest_of
from hostcore_builtin_plugins.uploaders.failures import failure_of, is_denied
from hostcore_hookspecs import UploadReceipt


class Store(Protocol):
    """Keeps objects under paths, which have ``/`` and start at the store's own root. Used from several threads."""

    def uri(self, path: str) -> str:
        """The whole name of an object."""

    def size(self, path: str) -> int | None:
        """Of an object, in bytes, asked anew; None if there is none."""

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """The bytes of an object, in order.

        :param size: How many there are.
        :param content: What is compared with it; it says when to give up.
        """

    def put(self, content: Content, path: str) -> None:
        """Write an object, or replace it, so that readers see the old one, if any, or the new one."""


def copy(store: Store, content: Content, path: str, *, verify: bool) -> UploadReceipt:
    """Have an object hold the content.

    :param verify: Whether what was written is read back whole.
    :raises TransientError: The store, or the way to it, fails; or the run is ending.
    :raises FatalError: The store refuses.
    """
    uri = store.uri(path)
    with upload_errors(uri):
        if _is_there(store, content, path):
            return UploadReceipt(uri=uri, size=content.size, sha256=content.sha256, existed=True)
        store.put(content, path)
        size, sha256 = store.size(path), ""
        if size is not None and verify:
            size, sha256 = digest_of(store.pieces(path, size, content))
        return UploadReceipt(uri=uri, size=size or 0, sha256=sha256)


def _is_there(store: Store, content: Content, path: str) -> bool:
    """Whether an object holds the content. What has its size need not: the tensors of two checkpoints have the same."""
    try:
        if store.size(path) != content.size:
            return False
        _, sha256 = digest_of(store.pieces(path, content.size, content))
    except FileNotFoundError:  # removed since
        return False
    except Exception as error:
        # Who may write need not be allowed to look; S3 does not even tell them that there is nothing.
        if is_denied(error):
            return False
        raise
    return content.is_digest(sha256)


@contextmanager
def upload_errors(uri: str) -> Iterator[None]:
    """Turn what a store's client raises into an error of the contract; a bug stays what it is."""
    try:
        yield
    except Exception as error:
        told = failure_of(error, uri)
        if told is None or told is error:
            raise
        raise told from error
