"""Going on from a checkpoint, on the same number of ranks or on another."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostcore.checkpoints.state import read_state
from hostcore.worker import randomness
from hostcore.worker.ranks.outcome import on_first
from hostcore.worker.resuming import Search
from hostcore.worker.taking import Subject
from hostcore_hookspecs import events


def restore(subject: Subject, search: Search, *, emit: Callable[[events.Payload], None]) -> Path | None:
    """Give everybody back what a checkpoint holds of them: the one that the first rank has found. A collective.

    :return: Its folder; None when there is none, and the run begins at step 0.
    """
    found = on_first(subject.ranks, lambda: str(search.point.found.folder) if search.point else None)
    if found is None:
        if search.skipped:
            lost = f"none of the {len(search.skipped)} checkpoints verifies: the run starts again at step 0"
            emit(events.Warning(code="checkpoint.none", message=lost))
        return None
    folder = subject.nodes.bring(Path(found))
    host: Mapping[str, Any] = search.point.host if search.point else read_state(folder, "host")
    subject.trainer.load(subject.state, folder, host, subject.ctx)
    for use, callback in subject.callbacks.items():
        if use in host["callbacks"]:
            callback.instance.load_callback_state(host["callbacks"][use])
    # The ranks' digests are added up; what was read before is in that of the first.
    subject.progress.load(host["progress"], digest=host["cursor"]["digest"] if subject.commits else 0)
    return folder


def random_states(subject: Subject, folder: Path, *, emit: Callable[[events.Payload], None]) -> Callable[[], None]:
    """What restores the random states of this rank, or makes new ones on another number of ranks.

    :param folder: Of the checkpoint that was restored.
    """
    host: Any = read_state(folder, "host")
    seed, step, rank = subject.ctx.job.seed, subject.progress.state.step, subject.ranks.rank
    before, now = host.get("world_size", 1), subject.ranks.world_size
    if before == now:
        states: Any = read_state(folder, f"rank-{rank}")
        return lambda: randomness.restore(states["random"])
    message = (
        f"the checkpoint of step {step} was written on {before} rank(s), and the run goes on with {now}: the data "
        "comes in the same order, but random states begin anew, from the seed, the step and the rank"
    )
    emit(events.Warning(code="resume.ranks", message=message))
    return lambda: randomness.derive(seed, step, rank)
