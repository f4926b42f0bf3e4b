"""Ways to write an object, so that nothing is under its name before all of it is there."""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import attrs
import psutil
from fsspec.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem

from hostcore_builtin_plugins.processes import place_name
from hostcore_builtin_plugins.stores.copying import Content
from hostcore_builtin_plugins.stores.errors import StoreError, error_code, meaning
from hostcore_hookspecs import FatalError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: Writes the content under a path of the file system.
Put = Callable[["AbstractFileSystem", Content, str], None]

#: Size of one request. A connection that breaks costs one of them; each upload holds one in memory.
_PART_BYTES: Final = 16 << 20
_S3_MOST_PARTS: Final = 10_000
#: A large object is hundreds of parts: one that fails does not cost the others.
_PART_TRIES: Final = 3
_PART_PAUSE_SECONDS: Final = 0.2
_PREFIX: Final = ".hostcore-upload-"
#: Of this process: another one may get its number.
_TOKEN: Final = os.urandom(4).hex()
_NUMBERS: Final = itertools.count(1)
_NAME: Final = re.compile(re.escape(_PREFIX) + r"(?P<host>.+)-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-\d+")
#: A process of another machine or container is taken for dead when its file has not changed for so long. Longer than
#: what the clock of this machine and of the store may differ by.
_SILENT_SECONDS: Final = 24 * 3600.0


def put_on_s3(filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write an object of S3, or of what speaks its protocol: with one request, or in parts that show once completed."""
    bucket, key, _ = filesystem.split_path(path)
    where = {"Bucket": bucket, "Key": key}
    described = {"ContentType": content.media_type} if content.media_type else {}
    with _in_bucket(bucket):
        if content.size <= _PART_BYTES:
            filesystem.call_s3("put_object", **where, **described, Body=b"".join(content.pieces()))
            return
        _abort_left_uploads(filesystem, bucket, key)
        begun = filesystem.call_s3("create_multipart_upload", **where, **described)
        upload = {**where, "UploadId": begun["UploadId"]}
        try:
            parts = _put_parts(filesystem, content, upload)
            filesystem.call_s3("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
        except BaseException:
            # If this fails too, the next try to write the object finds what is left.
            with suppress(Exception):
                filesystem.call_s3("abort_multipart_upload", **upload)
            raise


def _put_parts(
    filesystem: "AbstractFileSystem", content: Content, upload: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """Send the parts, one after the other: S3 would keep one that is under way when the upload is aborted."""
    parts = []
    part_bytes = max(_PART_BYTES, -(-content.size // _S3_MOST_PARTS))
    for number, piece in enumerate(content.pieces(part_bytes), start=1):
        sent = _sent_part(filesystem, content, {**upload, "PartNumber": number, "Body": piece})
        checksums = {name: value for name, value in sent.items() if name.startswith("Checksum")}
        parts.append({"PartNumber": number, "ETag": sent["ETag"], **checksums})
    return parts


def _sent_part(filesystem: "AbstractFileSystem", content: Content, part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send a part. One that is sent again replaces the first, so a retry after an unknown result does no harm."""
    for again in reversed(range(_PART_TRIES)):
        try:
            return dict(filesystem.call_s3("upload_part", **part))
        except Exception as error:
            found = meaning(error, part["Key"])
            if not again or not (isinstance(found, StoreError) and found.is_transient):
                raise
            content.go_on()
            time.sleep(_PART_PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _abort_left_uploads(filesystem: "AbstractFileSystem", bucket: str, key: str) -> None:
    """Remove the parts that a dead process, or one that lost its connection, has left of the same object."""
    try:
        listed = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
    except OSError:  # listing may be forbidden or not supported: the parts cost space, and do no other harm
        return
    for left in listed.get("Uploads") or ():
        if left["Key"] == key:
            with suppress(FileNotFoundError):
                filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=left["UploadId"])


def put_on_gcs(filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write an object of Google Cloud Storage: with one request, or in a session that shows once it is whole.

    The client cancels the session when an upload fails, and the store keeps nothing of it for longer than a week.
    """
    options = {"content_type": content.media_type} if content.media_type else {}
    with _in_bucket(path):
        try:
            filesystem.put_file(content.path, path, callback=_GoOn(content), chunksize=_PART_BYTES, **options)
        except Exception:
            content.go_on()  # cancelling the session may have failed in turn: what counts is why it was cancelled
            raise


def put_on_azure(filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write a blob of Azure: with one request, or as blocks that show once their list is committed.

    The store forgets blocks that were not committed when the blob is written again, or after a week.
    """
    # Of the client's own settings: blocks in memory, and tries before a failure reaches the host.
    with _in_bucket(path):
        filesystem.put_file(content.path, path, callback=_GoOn(content), max_concurrency=2, retry_total=1)


def put_on_hub(filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write a file of a repository of the Hugging Face Hub, in one commit.

    The file system itself would write a hidden file first, copy it and remove it: three commits.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # the terminal is the run's
    place = filesystem.resolve_path(path)
    content.go_on()
    HfApi(endpoint=filesystem.endpoint, token=filesystem.token).upload_file(
        path_or_fileobj=content.path,
        path_in_repo=place.path_in_repo,
        repo_id=place.repo_id,
        repo_type=place.repo_type,
        revision=place.revision,
        commit_message=f"Upload {place.path_in_repo}",
    )


@contextmanager
def _in_bucket(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error_code(error) == "NoSuchUpload":  # aborted by another process: the next one may go through
            raise
        name = path.partition("/")[0]
        raise FatalError(f"there is no bucket or container {name}", hint="make it, or name another one") from error


class _GoOn(Callback):  # type: ignore[misc]  # fsspec has no types
    """Progress of a client; it ends the transfer once the upload is to be given up."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content = content

    def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
        del hook_name, kwargs
        self._content.go_on()


def put_by_rename(filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write a hidden file beside, and give it its name when it is whole."""
    folder = path.rpartition("/")[0]
    filesystem.makedirs(folder, exist_ok=True)
    hidden = f"{folder}/{name_for_writing()}"
    try:
        with filesystem.open(hidden, "wb") as file:
            for piece in content.pieces():
                file.write(piece)
        try:
            filesystem.mv(hidden, path)
        except FileExistsError:  # some do not rename over a file
            filesystem.rm_file(path)
            filesystem.mv(hidden, path)
    except BaseException:
        with suppress(OSError):  # or else the next process finds it
            filesystem.rm_file(hidden)
        raise


def put_on_disk(_filesystem: "AbstractFileSystem", content: Content, path: str) -> None:
    """Write a file of this machine, or of a mounted network, which is on the disk before it has its name."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.parent / name_for_writing()
    try:
        with hidden.open("xb") as file:
            for piece in content.pieces():
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_OBJECT_STORES: Final[Mapping[str, Put]] = {
    "s3": put_on_s3,
    "gs": put_on_gcs,
    "abfs": put_on_azure,
    "hf": put_on_hub,
}


def way_to_put(filesystem: "AbstractFileSystem") -> Put:
    """Return the way to write in a file system; an unknown one is expected to rename."""
    if isinstance(filesystem, LocalFileSystem):
        return put_on_disk
    protocols = (filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol
    return next((_OBJECT_STORES[name] for name in protocols if name in _OBJECT_STORES), put_by_rename)


def remove_left_files(filesystem: "AbstractFileSystem", folder: str) -> None:
    """Remove the hidden files that dead processes have left below a folder."""
    for path in filesystem.find(folder):
        writer = Writer.of(PurePosixPath(path).name)
        with suppress(FileNotFoundError):  # another process cleans up, too
            if writer is not None and writer.is_dead(partial(_changed, filesystem, path)):
                filesystem.rm_file(path)


def _changed(filesystem: "AbstractFileSystem", path: str) -> float:
    return float(filesystem.modified(path).timestamp())


@attrs.frozen(kw_only=True)
class Writer:
    """The process that writes a file."""

    host: str
    pid: int
    token: str

    @classmethod
    def of(cls, name: str) -> "Writer | None":
        """Return the writer of a file by its name; None for any other file."""
        found = _NAME.fullmatch(name)
        return cls(host=found["host"], pid=int(found["pid"]), token=found["token"]) if found else None

    def is_dead(self, changed: Callable[[], float], *, now: Callable[[], float] = time.time) -> bool:
        """Return True if it will never finish its file.

        :param changed: The time of the file's last change, in seconds since 1970.
        :param now: The clock.
        """
        if self.token == _TOKEN:
            return False
        # With another token, this pid was a process before this one.
        if self.host == place_name() and (self.pid == os.getpid() or not psutil.pid_exists(self.pid)):
            return True
        return now() - changed() > _SILENT_SECONDS


def name_for_writing() -> str:
    """Return a unique hidden name for a file that gets its own name when it is whole."""
    return f"{_PREFIX}{place_name()}-{os.getpid()}-{_TOKEN}-{next(_NUMBERS)}"
