"""Resuming: which checkpoint a run continues from, checked before it starts, and how its state is restored."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from hostcore.checkpoints.errors import CheckpointError, writing
from hostcore.checkpoints.find import Found, Skipped, committed, load_record, newest, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.names import Claim, step_of_folder
from hostcore.runs.contract import WorkerContract
from hostcore.worker.feed.feed import Feed, check_identity
from hostcore.worker.ranks.outcome import on_first
from hostcore_hookspecs import events

if TYPE_CHECKING:
    from hostcore.worker.checkpoints.capture import CaptureSource


@attrs.frozen(kw_only=True)
class ResumePoint:
    """A verified checkpoint that fits the data."""

    found: Found
    #: What the host stored in it.
    host: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ResumeSearch:
    """Result of the search for a checkpoint to resume or begin from."""

    #: None: the run starts at step 0.
    point: ResumePoint | None
    #: The run's own checkpoints that do not verify, newest first.
    skipped: Sequence[Skipped] = ()
    #: What kept leftovers of earlier attempts from being removed.
    unremoved: Sequence[OSError] = ()


def find_resume_point(contract: WorkerContract, run_id: str, feed: Feed, *, rank: int = 0) -> ResumeSearch:
    """Find the run's newest checkpoint that verifies; without one, the checkpoint of another run that it begins from.

    :param rank: The first looks for all; the others learn of it when the run starts, and find nothing here.
    :raises CheckpointError: When there must be one and none verifies, or the folder belongs to another run.
    :raises DataChanged: When it belongs to other data.
    """
    if rank > 0:
        return ResumeSearch(point=None)
    folder = Path(contract.checkpoints_dir)
    if folder.parent != Path(contract.run_dir) or not contract.is_supervised:
        _refuse_foreign(folder, run_id)
    unremoved: list[OSError] = []
    with writing("what an earlier attempt left half-done", folder):
        remove_uncommitted(folder, contract.attempt, unremoved=unremoved)
    search = newest(folder)
    found = search.found
    if found is None and contract.start_from:
        found = load_record(Path(contract.start_from))
        verify(found.folder.parent, found.record)
    if found is None:
        if contract.must_resume:
            raise CheckpointError(
                "the run has no checkpoint that verifies",
                pointer="/resume_from_checkpoint",
                file=str(folder),
                hint='"auto" starts it again from the beginning',
            )
        return ResumeSearch(point=None, skipped=search.skipped, unremoved=unremoved)
    if found is search.found:
        Claim(folder.absolute(), found.record.step, found.record.attempt).retired.unlink(missing_ok=True)
    host = _state(found.folder, "host")
    assert isinstance(host, Mapping)
    check_identity(host["data"], feed, checkpoint=str(found.folder))
    return ResumeSearch(point=ResumePoint(found=found, host=host), skipped=search.skipped, unremoved=unremoved)


def find_named(path: Path) -> ResumeSearch:
    """Find the checkpoint that is to be evaluated, whatever data it was trained on.

    :param path: Its record or its folder; or a folder of checkpoints, of which the newest that verifies is captured.
    :raises CheckpointError: When it does not verify, or none does.
    """
    skipped: Sequence[Skipped] = ()
    if path.is_dir() and step_of_folder(path.name) is None:
        search = newest(path)
        found, skipped = search.found, search.skipped
        if found is None:
            raise CheckpointError(
                f"none of the {len(skipped)} checkpoints verifies" if skipped else "the run has no checkpoint yet",
                file=str(path),
                hint=f"the newest: {skipped[0].reason}" if skipped else None,
            )
    else:
        found = load_record(path)
        verify(found.folder.parent, found.record)
    host = _state(found.folder, "host")
    assert isinstance(host, Mapping)
    return ResumeSearch(point=ResumePoint(found=found, host=host), skipped=skipped)


def _refuse_foreign(folder: Path, run_id: str) -> None:
    """Neither continue nor remove the checkpoints of another run, in a folder that was chosen outside the job."""
    for record in reversed(committed(folder)):
        try:
            host = _state(folder / record.folder_name, "host")
        except CheckpointError:
            continue  # damaged: an older one has its run_id
        assert isinstance(host, Mapping)
        if host["run_id"] != run_id:
            raise CheckpointError(
                f"the checkpoints here belong to the run {host['run_id']!r}, not to {run_id!r}",
                file=str(folder),
                hint=f"choose another folder, or give the job the run_id {host['run_id']!r}",
            )
        return


def restore(source: "CaptureSource", search: ResumeSearch, *, emit: Callable[[events.Payload], None]) -> Path | None:
    """Restore all components from the checkpoint that the first rank has found. A collective.

    :return: Its folder; None when there is none, and the run begins at step 0.
    """
    found = on_first(source.ranks, lambda: str(search.point.found.folder) if search.point else None)
    if found is None:
        if search.skipped:
            lost = f"none of the {len(search.skipped)} checkpoints verifies: the run starts again at step 0"
            emit(events.Warning(code="checkpoint.none", message=lost))
        return None
    folder = source.nodes.bring(Path(found))
    host: Mapping[str, Any] = search.point.host if search.point else _state(folder, "host")
    source.trainer.load(source.state, folder, host, source.ctx)
    for use, callback in source.callbacks.items():
        if use in host["callbacks"]:
            callback.instance.load_callback_state(host["callbacks"][use])
    # The ranks' digests are added up; what was read before is in that of the first.
    source.progress.load(host["progress"], digest=host["cursor"]["digest"] if source.commits else 0)
    source.requests.load_owed(host.get("owed", {}), source.ctx.job)
    return folder


def random_states(
    source: "CaptureSource", folder: Path, *, emit: Callable[[events.Payload], None]
) -> Callable[[], None]:
    """Return a function that restores the random states of this rank, or makes new ones on another number of ranks.

    :param folder: Of the checkpoint that was restored.
    """
    from hostcore.worker import randomness

    host: Any = _state(folder, "host")
    seed, step, rank = source.ctx.job.seed, source.progress.state.step, source.ranks.rank
    before, now = host.get("world_size", 1), source.ranks.world_size
    if before == now:
        states: Any = _state(folder, f"rank-{rank}")
        return lambda: randomness.restore(states["random"])
    message = (
        f"the checkpoint of step {step} was written on {before} rank(s), and the run goes on with {now}: the data "
        "comes in the same order, but random states begin anew, from the seed, the step and the rank"
    )
    emit(events.Warning(code="resume.ranks", message=message))
    return lambda: randomness.derive(seed, step, rank)


def _state(folder: Path, name: str) -> Any:
    """A part of a checkpoint's state. Reading one needs torch; finding out that there is none does not."""
    from hostcore.checkpoints.state import read_state

    return read_state(folder, name)
