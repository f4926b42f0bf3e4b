"""An evaluation alone: what a worker does for ``hostcore evaluate`` in place of a training."""

from contextlib import ExitStack
from typing import Any

from hostcore.worker.assembly import Assembly
from hostcore.worker.lifetime import live


def evaluate_alone(parts: Assembly, split: str) -> dict[str, Any] | None:
    """Load the checkpoint that was found, validate or test, and tear down. No other hook of the loop is called.

    :param split: ``validation`` or ``test``.
    :return: What the supervisor is told: metrics and weight, as the events have them, and the checkpoint they are of.
        None when somebody asked to stop before the end.
    """
    search, ctx, run_state = parts.prepared.resume, parts.ctx, parts.progress.state
    assert search.point is not None
    begin, end = parts.hook(f"on_{split}_begin"), parts.hook(f"on_{split}_end")

    def work(state: Any) -> dict[str, Any] | None:
        parts.checkpointer(state).restore(search)
        with ExitStack() as open_ones:
            evaluation = parts.evaluation(split, state, open_ones)
            assert evaluation is not None
            begin(run_state, ctx)
            evaluated = evaluation.run()
            if evaluated is None:
                return None
            parts.progress.remember(evaluated.metrics)
            end(evaluated.metrics, run_state, ctx)
        return evaluated.content()

    content = live(parts, work)
    if content is None:
        return None
    return {
        **content,
        "step": run_state.step,
        "run_id": search.point.host["run_id"],
        "checkpoint": str(search.point.found.folder),
        "skipped": [{"path": str(one.path), "reason": one.reason} for one in search.skipped],
    }
