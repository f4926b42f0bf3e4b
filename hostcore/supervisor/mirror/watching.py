"""A run that goes on where its directory is not seen: what its mirror says of it, brought here again and again."""

from hostcore.checkpoints.durable import write_file
from hostcore.supervisor.mirror.place import mirror_of
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.errors import StoreError


def refresh(plan: RunPlan) -> None:
    """Bring what a run's mirror says of its attempts, its events and its end into the directory here.

    Nothing is done for a job without a mirror. A store that does not answer changes nothing: the launcher knows how the
    run goes.
    """
    try:
        mirror = mirror_of(plan.spec)
        if mirror is None:
            return
        names = [*(f"attempts/{number}.json" for number in mirror.attempts()), "logs/events.jsonl", "result.json"]
        for name in names:
            content = mirror.place.below(name).read()
            if content is not None:
                target = plan.directory.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                write_file(target, [content])
    except StoreError:
        return
