"""Uses an argument that contract 1.1 deprecates."""

import os
from pathlib import Path

from hostcore_hookspecs import RunState, StepContext


class TakesRequestedBy:
    """Asks for a stop after the second step, and notes who it was."""

    def on_batch_end(self, run_state: RunState, ctx: StepContext) -> None:
        if run_state.step == 2:
            ctx.request_stop("enough")

    def on_stop_requested(self, reason: str, requested_by: str) -> None:
        Path(os.environ["WITNESS"], "asked.txt").write_text(f"{reason}: {requested_by}")
