"""A module's steps on a device that is pretended: what the CPU can show of a GPU."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from device_reads import DeviceReads
from pretended_cuda import CopiesToCuda

from hostcore_hookspecs import ImportPath, Job, RunState, StepContext
from hostcore_lightning.data import Loaders
from hostcore_lightning.settings import Hyperparams
from hostcore_lightning.trainer import LightningTrainer

DATA = ImportPath("user_modules:Data")


def configured(module: str, **keys: Any) -> tuple[LightningTrainer, Any, StepContext]:
    """The trainer, its state and a context."""
    torch.manual_seed(1)
    hyperparams = Hyperparams(module=ImportPath(f"user_modules:{module}"), datamodule=DATA)
    job = Job(max_steps=20, metric_every=10)
    ctx = StepContext(job=job, hyperparams=hyperparams, run_state=RunState(total_steps=20), **keys)
    trainer = LightningTrainer()
    return trainer, trainer.configure(ctx), ctx


def batches(count: int) -> Iterator[Any]:
    loaders = Loaders(Hyperparams(module=ImportPath("user_modules:Classifier"), datamodule=DATA), seed=0)
    for number in range(count):
        yield loaders.batch(range(8 * number, 8 * number + 8), "train")


def test_batches_are_copied_from_pinned_memory_without_blocking() -> None:
    with CopiesToCuda() as copies:
        copies.is_lenient = True
        trainer, state, _ = configured("Classifier", device="cuda:0")
        copies.copies, copies.is_lenient = 0, False
        trainer.prepare_batch(next(batches(1)), state)
    assert copies.copies == 2


@pytest.mark.parametrize("module", ["Classifier", "Plain"])
def test_steps_read_nothing_of_the_device_between_cadence_steps(module: str) -> None:
    trainer, state, ctx = configured(module)
    device = DeviceReads()
    device.put(state.module)
    device.start()
    try:
        for number, raw_batch in enumerate(batches(4)):
            ctx.batch_index = number
            device.forbidden = number > 0  # what is set up in the first step may read
            trainer.train_step(device.put(trainer.prepare_batch(raw_batch, state)), state, ctx)
    finally:
        device.stop()
