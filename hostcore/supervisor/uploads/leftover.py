"""What uploads have left: the rest of a run that has ended, copied by its own uploaders or to another place."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.load import load_job
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.component import Component, load_component
from hostcore.plugins.discover import Discovered, discover
from hostcore.plugins.requirements import check_contract_version
from hostcore.plugins.resolve import Selected, resolve
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.contract import InvalidContract, WorkerContract
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.supervisor.uploads.backlog import Pending
from hostcore.supervisor.uploads.destination import FSSPEC, Destination, destinations_of, mirroring, prefix_of
from hostcore.supervisor.uploads.ledger import Ledger
from hostcore.supervisor.uploads.patience import Limits
from hostcore.supervisor.uploads.uploads import Uploads
from hostcore_hookspecs.errors import HostcoreError


class NoUploader(HostcoreError):
    """There is nobody to upload the run."""

    code = "uploads.none"


@attrs.frozen(kw_only=True)
class Chosen:
    """The uploaders that are to copy a run."""

    destinations: Sequence[Destination]
    #: Keys of the run's own that are not among them.
    owed: Sequence[str]
    base_uri: str | None
    #: The job as recorded.
    spec: JobSpec


def choose(directory: RunDirectory, names: Sequence[str] = (), *, to: str | None = None) -> Chosen:
    """Load the uploaders of a run, or the one that copies it to a URI.

    :param names: Those of the run's own that are wanted: as the job names them, or as the ledger does; all, if none.
    :param to: A URI in place of them.
    :raises HostcoreError: When the run has none, or none of such a name, or one cannot be loaded.
    """
    record = RunRecord.read(directory.record)
    job_dir = Path(record.job_dir)
    try:
        spec = load_job(record.job, base_dir=job_dir, world_size=record.world_size or None)
        own = _load(mirroring(spec.uploaders, spec.checkpoint_base_uri), job_dir, base_uri=spec.checkpoint_base_uri)
    except HostcoreError as error:
        if to is None:
            for one in all_errors(error):
                one.file = one.file or str(directory.record)
            raise
        # What the run's own uploaders lack is their business; that they cannot be loaded must not keep this one.
        spec, own = load_job(record.job, base_dir=job_dir, world_size=record.world_size or None), []
    if to is not None:
        destinations = _load([DeliveryUse(use=FSSPEC)], job_dir, base_uri=to)
        chosen = Chosen(destinations=destinations, owed=(), base_uri=to, spec=spec)
    else:
        destinations = _wanted(directory, own, names)
        chosen = Chosen(destinations=destinations, owed=(), base_uri=spec.checkpoint_base_uri, spec=spec)
    served = {one.key for one in destinations}
    return attrs.evolve(chosen, owed=[one.key for one in own if one.key not in served])


def _wanted(directory: RunDirectory, own: Sequence[Destination], names: Sequence[str]) -> list[Destination]:
    if not own:
        raise NoUploader(
            f"the job of {directory.run_id} has no uploaders",
            file=str(directory.record),
            hint="say where to: hostcore upload RUN --to URI, such as s3://bucket/runs or a folder",
        )
    known = ", ".join(one.name for one in own)
    for name in names:
        if not any(_is_called(one, name) for one in own):
            raise NoUploader(f"{directory.run_id} has no uploader {name!r}", file="--uploader", hint=f"it has: {known}")
    return [one for one in own if not names or any(_is_called(one, name) for name in names)]


def _is_called(destination: Destination, name: str) -> bool:
    return destination.name == name.rpartition("/")[2]


def _load(uses: Sequence[DeliveryUse], job_dir: Path, *, base_uri: str | None) -> list[Destination]:
    discovered = discover()
    components: list[Component] = []
    errors: list[HostcoreError] = []
    for position, use in enumerate(uses):
        try:
            components.append(load_component(_selected(use, position, discovered), job_dir=job_dir))
        except HostcoreError as error:
            errors += all_errors(error)
    if errors:
        raise Errors(errors)
    return destinations_of(components, uses, base_uri=base_uri)


def _selected(use: DeliveryUse, position: int, discovered: Discovered) -> Selected:
    pointer = f"/uploaders/{position}"
    ref = resolve(use.use, "uploader", discovered, pointer=pointer)
    check_contract_version(ref, pointer=pointer)
    label = f"uploader:{position}:{ref.name}"
    return Selected(ref=ref, settings=use.settings, pointer=pointer, use=label, named_at=pointer)


def uploads_of(directory: RunDirectory, chosen: Chosen, *, limits: Limits | None = None) -> Uploads:
    """The uploads of a run that has ended; nothing of it is given up because it has waited.

    :raises LedgerBusy: When another process uploads it now.
    """
    attempt = newest_attempt(directory.attempts)
    Ledger(directory.uploads, attempt=attempt).close()
    checkpoints, samples = _places(directory, attempt)
    return Uploads(
        chosen.destinations,
        directory,
        attempt=attempt,
        job=job_view(chosen.spec),
        base_uri=chosen.base_uri,
        prefix=prefix_of(directory.run_id, chosen.spec.trainer),
        spool_bytes=0,
        spool_seconds=0,
        checkpoints_dir=checkpoints,
        samples_dir=samples,
        owed=chosen.owed,
        limits=limits,
    )


def _places(directory: RunDirectory, attempt: int) -> tuple[Path | None, Path | None]:
    """Where an attempt wrote checkpoints and samples, if not below the run directory."""
    try:
        contract = WorkerContract.read(directory.contract(attempt, 0))
    except InvalidContract:  # there is none yet, or it was made by another version
        return None, None
    places = (Path(contract.checkpoints_dir), Path(contract.samples_dir))
    checkpoints, samples = (None if place.is_relative_to(contract.run_dir) else place for place in places)
    return checkpoints, samples


class Patience:
    """Knows when uploads that get nowhere should be left.

    :param clock: Seconds, from anywhere.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._arrived = -1
        self._since = 0.0

    def is_over(self, pending: Pending) -> bool:
        """Whether nothing has arrived for so long, while everybody who has something left is failing."""
        busy = [one for one in pending.by_uploader.values() if one.left]
        arrived = pending.uploaded_files
        if arrived != self._arrived or not busy or not all(one.is_failing for one in busy):
            self._arrived, self._since = arrived, self._clock()
        return self._clock() - self._since > self._seconds
