"""The program of ``example_trainers/linear`` in Python, which fails where its settings say; only once in a run.

``holds_at`` and ``aborts_at`` are steps: it writes a file ``RUN.holding`` and does nothing more, or dies.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "example_trainers/linear/python"))
import linear


class Altered(linear.Linear):
    """Linear, with failures."""

    def initialize(self, protocol, settings, run):
        self._run = settings.pop("run")
        self._failures = {settings.pop("holds_at", None): self._hold, settings.pop("aborts_at", None): self._abort}
        return super().initialize(protocol, settings, run)

    def train_step(self, batches, step, epoch):
        failed = Path(f"{self._run}.failed")
        if step in self._failures and not failed.exists():
            failed.write_text(str(os.getpid()))
            self._failures[step]()
        return super().train_step(batches, step, epoch)

    def _hold(self):
        Path(f"{self._run}.holding").touch()
        time.sleep(3600)

    def _abort(self):
        print("I give up", file=sys.stderr, flush=True)
        os.abort()


linear.Linear = Altered
linear.main()
