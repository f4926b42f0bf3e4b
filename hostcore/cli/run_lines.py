"""Runs as ``hostcore list`` shows them, wherever they are."""

import time
from collections.abc import Sequence

from hostcore.cli.output import echo, print_json, print_table
from hostcore.report.wording import ago, lasting, steps_of
from hostcore.runs.summary import RunSummary


def print_runs(runs: Sequence[RunSummary], *, as_json: bool, nothing: str) -> None:
    """Print runs in their order.

    :param nothing: What to tell people if there are none.
    """
    if as_json:
        print_json({"runs": [run.as_dict() for run in runs]})
    elif runs:
        now = time.time_ns() // 1_000_000
        print_table(
            ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED", "DURATION"],
            [
                (
                    *(run.run_id, run.status, run.trainer, steps_of(run.step, run.max_steps), run.attempt),
                    *(ago(run.submitted_ms, now), lasting(run.seconds(now))),
                )
                for run in runs
            ],
        )
    else:
        echo(nothing, err=True)


def is_of(run: RunSummary, trainer: str | None) -> bool:
    """Whether a run is one of a trainer; None: of any."""
    return trainer is None or trainer in (run.trainer, run.trainer.rpartition("/")[2])
