"""The uploader ``fsspec``: copies the run to any store that fsspec has a file system for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Gt

from hostcore_builtin_plugins.extras import require
from hostcore_builtin_plugins.stores.copying import Content, copy
from hostcore_builtin_plugins.stores.errors import upload_errors
from hostcore_hookspecs import (
    Artifact,
    FatalError,
    HostcoreError,
    InvalidSettings,
    Secret,
    UploadContext,
    UploadReceipt,
    Uri,
)

if TYPE_CHECKING:
    from hostcore_builtin_plugins.stores.folder import StoreFolder

#: What a store needs beside fsspec: the package, and the extra of hostcore-builtin-plugins that brings it.
_EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("s3", "s3a"), ("s3fs", "s3")),
    **dict.fromkeys(("gs", "gcs"), ("gcsfs", "gcs")),
    **dict.fromkeys(("abfs", "abfss", "az"), ("adlfs", "azure")),
}

#: What makes other files count: whether the run at the place is still this one is asked before each.
_SEALS: Final = frozenset({"config", "commit", "result"})


class FsspecUploader:
    """Copies every artifact to ``<uri>/<run_id>/framework=<trainer>/<relative path>``, and reads it back."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The destination, and the credentials for it."""

        uri: Uri | None = attrs.field(
            default=None,
            metadata={
                "help": "The folder: a URI that fsspec understands, such as `s3://bucket/runs`, or an absolute path of "
                "this machine. By default the job's `checkpoint_base_uri`."
            },
        )
        storage_options: Mapping[str, Any] = attrs.field(
            factory=dict,
            repr=False,
            metadata={"help": "For the file system of fsspec: an endpoint, credentials, …"},
        )
        verify: bool = attrs.field(
            default=True,
            metadata={"help": "Read back what was written, and compare its SHA-256; otherwise only its size."},
        )
        timeout_seconds: Annotated[float, Gt(0)] = attrs.field(
            default=60.0, metadata={"help": "How long a server may be silent before a request counts as failed."}
        )

    def __init__(self, *, settings: Settings | None = None) -> None:
        self._settings = settings or self.Settings()
        if self._settings.uri is not None:
            check_uri(self._settings.uri)
        self._place: StoreFolder | None = None
        self._ctx: UploadContext

    def open(self, ctx: UploadContext) -> None:
        """Load the store's client, and remove what a dead process has left half-written.

        :raises FatalError: There is nowhere to upload to, or the client is not installed or refuses its options; or
            another run lies there.
        :raises TransientError: The store cannot be reached.
        """
        uri = self._settings.uri if self._settings.uri is not None else ctx.base_uri
        if uri is None:
            hint = 'give the uploader a "uri", or the job a checkpoint_base_uri'
            raise FatalError("fsspec has nowhere to upload to", hint=hint)
        try:
            check_uri(uri)
        except HostcoreError as error:
            raise FatalError(error.message, hint=error.hint) from None
        from hostcore_builtin_plugins.stores.folder import StoreFolder

        with upload_errors(uri):
            place = StoreFolder(uri, _plain(self._settings.storage_options), self._settings.timeout_seconds)
            place.remove_leftovers(ctx.prefix)
            require_own_run(place, ctx)
        self._place, self._ctx = place, ctx

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        """Write the artifact, unless it is there, and read it back.

        :raises TransientError: The store, or the way to it, fails; or the run is ending.
        :raises FatalError: The store refuses; or another run lies there.
        """
        place = self._place
        if place is None:
            raise FatalError("fsspec is not open")
        content = Content.of(artifact, self._ctx.is_canceled)
        path = f"{self._ctx.prefix}/{artifact.relative_path}" if self._ctx.prefix else artifact.relative_path
        if artifact.kind in _SEALS:
            with upload_errors(place.uri(path)):
                require_own_run(place, self._ctx)
        return copy(place, content, path, verify=self._settings.verify)

    def close(self) -> None:
        """Let go of the client; its connections close when the last upload that may hang has ended."""
        self._place = None


def require_own_run(place: "StoreFolder", ctx: UploadContext) -> None:
    """See that no other run lies where this one is to be copied, and no later attempt of it that was begun elsewhere.

    A run is known by the claims of its attempts: each has the process that made it.

    :raises FatalError: Another run lies there. Nothing is written.
    """
    path = f"{ctx.prefix}/" if ctx.prefix else ""
    own = {claim.stem: claim for claim in Path(ctx.run_dir, "attempts").glob("*.json")}
    if not own or "run.json" not in place.names(f"{path}config"):
        return
    theirs = [int(stem) for name in place.names(f"{path}attempts") if (stem := Path(name).stem).isdecimal()]
    newest = max((number for number in theirs if number > ctx.attempt or str(number) in own), default=0)
    if newest == 0:
        return
    claim = place.read(f"{path}attempts/{newest}.json")
    if newest > ctx.attempt or claim not in (None, own[str(newest)].read_bytes()):
        raise FatalError(
            f"another run lies at {place.uri(ctx.prefix)}: its attempt {newest} was begun elsewhere",
            hint="nothing of it is overwritten; choose another run_id, or go on from it where this run is not",
        )


def check_uri(uri: str) -> None:
    """Refuse a place that nothing could be uploaded to. Loads nothing.

    :raises InvalidSettings: Its pointer is ``/uri``.
    :raises HostcoreError: The store's client is not installed.
    """
    protocol, separator, rest = uri.partition("://")
    if not separator and not os.path.expanduser(uri).startswith("/"):  # noqa: PTH111 - there may be no home
        hint = "write an absolute path, or a URI such as s3://bucket/runs"
        raise InvalidSettings("/uri", f"{uri!r} is neither a URI nor an absolute path", hint=hint)
    if separator and not rest.strip("/") and protocol not in ("file", "local", "memory"):
        raise InvalidSettings("/uri", f"{uri!r} names no bucket", hint=f"write {protocol}://bucket/folder")
    if protocol in ("http", "https"):
        hint = "the uploader http does: {path} in its url stands for the path of each file"
        raise InvalidSettings("/uri", "fsspec cannot write to an HTTP server", hint=hint)
    if protocol in _EXTRAS:
        package, extra = _EXTRAS[protocol]
        require(package, extra=extra)


def _plain(options: Any) -> Any:
    if isinstance(options, Secret):
        return options.value
    if isinstance(options, Mapping):
        return {key: _plain(value) for key, value in options.items()}
    return [_plain(value) for value in options] if isinstance(options, list | tuple) else options
