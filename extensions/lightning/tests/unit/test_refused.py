"""What cannot be run: one error each, with the way out."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from lit_jobs import section

from hostcore_hookspecs import ImportPath, Job, RunState, StepContext
from hostcore_lightning.configuring import configured
from hostcore_lightning.settings import CallbackUse, CannotRun, Hyperparams
from hostcore_lightning.trainer import LightningTrainer
from hostcore_lightning.trainer_view import TrainerInternal


def context(module: str, job: Job | None = None, **hyperparams: Any) -> StepContext:
    given = Hyperparams(module=ImportPath(f"user_modules:{module}"), **hyperparams)
    return StepContext(job=job or Job(max_steps=3), hyperparams=given, run_state=RunState(total_steps=3))


def refused(ctx: StepContext) -> CannotRun:
    with pytest.raises(CannotRun) as caught:
        configured(ctx, None)
    return caught.value


@pytest.mark.parametrize(
    ("module", "job", "says"),
    [
        ("NoStep", None, "NoStep has no training_step"),
        ("NoOptimizer", None, "NoOptimizer has no configure_optimizers"),
        ("Data", None, "user_modules:Data is no LightningModule but a LightningDataModule"),
        ("Plain", Job(validation=section(40)), "Plain has no validation_step, which validation needs"),
        ("ByHand", Job(accumulate=2), "ByHand optimizes by hand, and the job accumulates 2 batches for it"),
    ],
)
def test_a_module_that_lacks_something(module: str, job: Job | None, says: str) -> None:
    error = refused(context(module, job))
    assert error.message == says
    assert error.pointer == "/module"
    assert error.hint


def test_clipping_by_the_host_of_a_module_that_optimizes_by_hand() -> None:
    assert refused(context("ByHand", gradient_clip_val=1.0)).pointer == "/gradient_clip_val"


@pytest.mark.parametrize(
    ("callback", "way_out"),
    [("ModelCheckpoint", "best-checkpoint"), ("StochasticWeightAveraging", "WeightAveraging"), ("Timer", "max_steps")],
)
def test_callbacks_that_steer_a_trainer(callback: str, way_out: str) -> None:
    init = (
        {"swa_lrs": 0.1}
        if callback.startswith("Stochastic")
        else {"duration": "00:00:01:00"}
        if callback == "Timer"
        else {}
    )
    use = CallbackUse(use=ImportPath(f"lightning.pytorch.callbacks:{callback}"), init=init)
    error = refused(context("Plain", callbacks=(use,)))
    assert error.pointer == "/callbacks/0/use"
    assert way_out in (error.hint or "")


def test_a_part_of_the_trainer_is_named() -> None:
    fit = configured(context("Internals"), None)
    with pytest.raises(TrainerInternal, match=r"`trainer\.fit_loop` is a part of Lightning's Trainer"):
        fit.module.on_train_batch_start(None, 0)
    assert not hasattr(fit.module.trainer, "fit_loop")


def test_a_module_of_the_other_package_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    import pytorch_lightning
    import user_modules

    class Other(pytorch_lightning.LightningModule):
        pass

    monkeypatch.setattr(user_modules, "Other", Other, raising=False)
    assert "import lightning.pytorch as pl" in (refused(context("Other")).hint or "")


def test_a_checkpoint_of_the_module_is_dropped_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="ModelCheckpoint is left out"):
        fit = configured(context("Hooked"), None)
    assert [type(one).__name__ for one in fit.view.callbacks] == ["EarlyStopping"]


def test_weights_of_a_checkpoint_of_lightning(tmp_path: Any) -> None:
    from user_modules import Classifier

    from hostcore_lightning.checkpoint import export

    fit = configured(context("Classifier"), None)
    export(fit, tmp_path)
    assert torch.equal(Classifier.load_from_checkpoint(tmp_path / "model.ckpt").net[0].weight, fit.module.net[0].weight)
    ctx = context("Classifier")
    ctx.model_handles = {"weights": str(tmp_path / "model.ckpt")}
    assert torch.equal(configured(ctx, None).module.net[0].weight, fit.module.net[0].weight)
    ctx = context("Plain")
    ctx.model_handles = {"weights": str(tmp_path / "model.ckpt")}
    with pytest.raises(Exception, match="the weights cannot be loaded into Plain"):
        configured(ctx, None)


def test_lightning_that_is_missing_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostcore_lightning.trainer.find_spec", lambda _: None)
    with pytest.raises(CannotRun, match="lightning is not installed") as caught:
        LightningTrainer()
    assert caught.value.hint == "pip install 'hostcore[lightning]'"


def test_the_trainer_is_named_without_importing_lightning() -> None:
    code = "import sys, hostcore_lightning.trainer; sys.exit('lightning' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
