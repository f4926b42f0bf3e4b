"""Mirror of a run: its place, and its content."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import orjson

from hostcore.checkpoints.names import step_of_folder, step_of_record
from hostcore.job.names import is_builtin
from hostcore.job.paths import is_uri
from hostcore.job.spec import JobSpec
from hostcore.runs.documents import CorruptDocument, from_document
from hostcore.runs.record import SCHEMA, RunRecord
from hostcore.secrets.reference import resolve_secrets, without_marks
from hostcore.supervisor.delivery.subscription import prefix_of
from hostcore_builtin_plugins.stores.errors import StoreError
from hostcore_builtin_plugins.stores.location import Location

BASE = "/checkpoint_base_uri"
#: What the environment of a run was built from; not there if it has none of its own.
LOCK = "config/pylock.toml"


def storage_options(spec: JobSpec) -> Mapping[str, Any]:
    """Return the options for the store of ``checkpoint_base_uri``: those of the uploader that writes the mirror."""
    for index, one in enumerate(spec.uploaders):
        options = one.settings.get("storage_options")
        if is_builtin(one.use, "fsspec") and "uri" not in one.settings and isinstance(options, Mapping):
            return dict(without_marks(resolve_secrets(options, f"/uploaders/{index}/storage_options")))
    return {}


def require_places(spec: JobSpec) -> None:
    """See that there is a file system for every place that the uploader fsspec is to copy to. No store is asked.

    :raises StoreError: When there is none for one of them, or no place.
    """
    for index, one in enumerate(spec.uploaders):
        if not is_builtin(one.use, "fsspec"):
            continue
        own, pointer = one.settings.get("uri"), f"/uploaders/{index}"
        uri = spec.checkpoint_base_uri if own is None else own
        if uri is None:
            hint = 'give it a "uri", or the job a "checkpoint_base_uri"'
            raise StoreError(
                "the uploader fsspec has nowhere to copy to", code="store.none", pointer=pointer, hint=hint
            )
        if isinstance(uri, str):  # a reference to a secret is told when it is used
            Location.of(uri, pointer=BASE if own is None else f"{pointer}/uri")


def mirror_of(spec: JobSpec) -> "Mirror | None":
    """The mirror of a job's run; None if the job has none.

    :raises StoreError: When there is no file system for it.
    """
    if spec.checkpoint_base_uri is None:
        return None
    base = Location.of(spec.checkpoint_base_uri, storage_options(spec), pointer=BASE)
    return Mirror(untrusted(base).below(prefix_of(spec.run_id, spec.trainer)))


def untrusted(place: Location) -> Location:
    """Return a place whose writer need not be trusted: in a folder of this machine, only regular files are there."""
    from fsspec.implementations.local import LocalFileSystem

    if not isinstance(place.filesystem, LocalFileSystem):
        return place
    from hostcore.supervisor.remote.regular_files import RegularFiles

    return attrs.evolve(place, filesystem=RegularFiles(place.path, **place.filesystem.storage_options))


def options_for(uri: str, spec: JobSpec) -> Mapping[str, Any]:
    """Return the options for the store of another URI of the job: those of the mirror, if it is of the same kind."""
    base = spec.checkpoint_base_uri or ""
    same = is_uri(uri) and uri.partition("://")[0] == base.partition("://")[0]
    return storage_options(spec) if same else {}


@attrs.frozen
class Mirror:
    """``<base>/<run_id>/framework=<trainer>``: laid out like a run directory. It holds regular files, or nothing."""

    place: Location

    @property
    def uri(self) -> str:
        """Its name in messages."""
        return self.place.uri

    def record(self) -> RunRecord | None:
        """The record of the run; None if there is no run here.

        :raises StoreError: When the store cannot be asked.
        :raises CorruptDocument: When the record is none.
        """
        content = self.place.below("config/run.json").read()
        return None if content is None else record_of(content, f"{self.uri}/config/run.json")

    def lock(self) -> str | None:
        """Return the lock of the run's environment; None if it has none of its own, or there is no run here.

        :raises StoreError: When the store cannot be asked.
        """
        content = self.place.below(LOCK).read()
        return None if content is None else content.decode(errors="replace")

    def attempts(self) -> list[int]:
        """The attempts that were begun, oldest first."""
        names = [PurePosixPath(name) for name in self.place.below("attempts").names()]
        return sorted(int(name.stem) for name in names if name.suffix == ".json" and name.stem.isdecimal())

    def steps(self) -> tuple[list[int], list[int]]:
        """The steps that have a commit record, and those that have a folder alone; newest first."""
        names = self.place.below("checkpoints").names()
        committed = {step for name in names if (step := step_of_record(name)) is not None}
        folders = {step for name in names if (step := step_of_folder(name)) is not None}
        return sorted(committed, reverse=True), sorted(folders - committed, reverse=True)


def record_of(content: bytes, uri: str) -> RunRecord:
    """A run's record from the content of its file.

    :raises CorruptDocument: When it is none.
    """
    try:
        found = orjson.loads(content)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ValueError("it is not a run's record")
        record = from_document(RunRecord, found, file=Path(uri))
        if not isinstance(record.job, dict) or "trainer" not in record.job:
            raise ValueError("it holds no job")
    except (ValueError, CorruptDocument) as error:
        raise CorruptDocument(f"the mirror of the run is damaged: {error}", file=uri) from error
    return record
