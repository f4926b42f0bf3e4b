"""The files of a run that others may have, where its directory is not seen from here: what its mirror has of them."""

from collections.abc import Iterator, Sequence

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.names import record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.supervisor.remote.checkpoints import read_record
from hostcore.supervisor.remote.mirror import Mirror
from hostcore.supervisor.run_status import CommittedCheckpoint
from hostcore_builtin_plugins.stores.location import Location
from hostcore_service.jobs.downloads import FileContent
from hostcore_service.jobs.run_files import RECORD, ArtifactFile, is_artifact, no_such

#: Commit records that are read for a list: the newest.
_MOST_RECORDS = 100


@attrs.frozen
class MirrorFiles:
    """Of a mirror."""

    mirror: Mirror

    @property
    def _checkpoints(self) -> Location:
        return self.mirror.place.below("checkpoints")

    def checkpoints(self) -> Sequence[CommittedCheckpoint]:
        """See :class:`hostcore_service.jobs.run_files.Files`."""
        committed, _ = self.mirror.steps()
        found = []
        for step in sorted(committed[:_MOST_RECORDS]):
            try:
                _, record = read_record(self._checkpoints, step)
            except CheckpointError:
                continue  # removed in this moment, or none
            file = self._checkpoints.below(record_name(step)).file()
            found.append(CommittedCheckpoint.of(record, saved_ms=file.modified_ms if file else None))
        return found

    def record(self, step: int) -> CommitRecord:
        """See :class:`hostcore_service.jobs.run_files.Files`."""
        return read_record(self._checkpoints, step)[1]

    def open_of_checkpoint(self, record: CommitRecord, path: str) -> FileContent:
        """See :class:`hostcore_service.jobs.run_files.Files`."""
        return _opened(self._checkpoints.below(f"{record.folder_name}/{path}"), path)

    def artifacts(self) -> Iterator[ArtifactFile]:
        """See :class:`hostcore_service.jobs.run_files.Files`."""
        record = self.mirror.place.below(RECORD).file()
        if record is not None:
            yield ArtifactFile(path=RECORD, bytes=record.size or 0, modified_ms=record.modified_ms)
        for name in self.mirror.place.names():
            if not is_artifact(name):
                continue
            listing = self.mirror.place.below(name).listing()
            for file in listing.files:
                path = f"{name}/{file.name}" if listing.is_folder else name
                if is_artifact(path):
                    yield ArtifactFile(path=path, bytes=file.size or 0, modified_ms=file.modified_ms)

    def open(self, path: str) -> FileContent:
        """See :class:`hostcore_service.jobs.run_files.Files`."""
        return _opened(self.mirror.place.below(path), path)


def _opened(place: Location, path: str) -> FileContent:
    file = place.file()
    if file is None or file.size is None:
        raise no_such(path)
    return FileContent(
        name=path.rpartition("/")[2],
        size=file.size,
        version="".join(
            letter for letter in file.version if (letter.isascii() and letter.isalnum()) or letter in "-.:_"
        ),
        modified_ms=file.modified_ms,
        far=True,
        read=lambda begin, size: place.read(begin, begin + size) or b"",
        close=lambda: None,
    )
