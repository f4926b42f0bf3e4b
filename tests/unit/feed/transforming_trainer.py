"""Trainers and a callback of the tests of ``transform_batch``. Imports no torch: processes are to be ready soon."""

import os
import random
import signal
import sys
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hostcore_hookspecs import FatalError, hookimpl


class Trainer:
    """What is needed to be taken for a trainer."""

    def setup(self) -> None:
        self.vocabulary = ["made in setup"]

    def configure(self) -> Any:
        """Nothing."""

    def prepare_batch(self, raw_batch: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any) -> Any:
        """Nothing."""

    def state_dict(self, state: Any) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Any, payload: dict[str, object]) -> None:
        """Nothing."""


class Draws(Trainer):
    """Returns something of everything, and what it drew."""

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: Any) -> Any:
        numbers = raw_batch["n"].to_numpy()
        time.sleep(random.SystemRandom().random() * 0.01)  # finish in any order
        return {
            "rows": numbers.tolist(),
            "drawn": rng.random(4) + numbers[:1],
            "batch": raw_batch,
            "seen": (str(ctx.device), ctx.rank, ctx.job.seed, ctx.hyperparams["scale"], ctx.optimizer, ctx.dataset),
            "torch": "torch" in sys.modules,
            "pid": os.getpid(),
        }


class Behaves(Trainer):
    """Does what its hyperparameter ``at`` says for a batch's first row; returns the rows of all others."""

    def transform_batch(self, raw_batch: Any, ctx: Any) -> Any:
        rows = raw_batch["n"].to_pylist()
        how = ctx.hyperparams["at"].get(str(rows[0]))
        return getattr(self, f"_{how}")(ctx) if how else rows

    def _gives_up(self, ctx: Any) -> Any:
        raise FatalError("no decoder", hint="install one")

    def _exits(self, ctx: Any) -> Any:
        sys.exit(3)

    def _is_killed(self, ctx: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def _hangs(self, ctx: Any) -> Any:
        Path(ctx.hyperparams["sign"]).touch()
        while True:
            time.sleep(60)

    def _returns_a_lock(self, ctx: Any) -> Any:
        return {"lock": threading.Lock()}

    def _needs_setup(self, ctx: Any) -> Any:
        return self.vocabulary

    def _stops_the_run(self, ctx: Any) -> Any:
        ctx.request_stop("seen enough")

    def _prints(self, ctx: Any) -> Any:
        print("hello from a batch")
        return "printed"


class DrawsGlobally(Trainer):
    """Draws from a global generator at every batch."""

    def transform_batch(self, raw_batch: Any) -> Any:
        return np.random.rand()


class DrawsOnce(Trainer):
    """Draws from a global generator where it makes what it needs."""

    @cached_property
    def table(self) -> float:
        return random.random()

    def transform_batch(self, raw_batch: Any) -> Any:
        return self.table


class Doubles:
    """A callback that wraps the trainer's ``transform_batch``."""

    @hookimpl(wrapper=True)
    def transform_batch(self, raw_batch: Any) -> Any:
        rows = yield
        return rows * 2


class OnlyInTheWorker:
    """A callback that does not wrap it, and that no other process may make."""

    def __init__(self) -> None:
        if os.environ["WORKER"] != str(os.getpid()):
            raise RuntimeError("made in another process")

    def on_train_begin(self) -> None:
        """Nothing."""
