"""What cannot be run: one error each, with the way out."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lit_jobs import section
from user_modules import Classifier, Data

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import DataContext, HostcoreError, ImportPath, InvalidData, Job, RunState, StepContext
from hostcore_lightning.checkpoint import export
from hostcore_lightning.configuring import configured
from hostcore_lightning.fit import Fit
from hostcore_lightning.indices import MARK
from hostcore_lightning.settings import CallbackUse, CannotRun, Hyperparams
from hostcore_lightning.trainer import LightningTrainer
from hostcore_lightning.trainer_view import TrainerInternal, TrainerView
from hostcore_toolkit.items import ItemNumbers


def context(module: str, job: Job | None = None, **hyperparams: Any) -> StepContext:
    given = Hyperparams(module=ImportPath(f"user_modules:{module}"), **hyperparams)
    return StepContext(job=job or Job(max_steps=3), hyperparams=given, run_state=RunState(total_steps=3))


def made(ctx: StepContext) -> Fit:
    return configured(ctx, None, ctx.hyperparams)


def refused(ctx: StepContext) -> CannotRun:
    with pytest.raises(CannotRun) as caught:
        made(ctx)
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
    # Nor does the host clip the gradients of a module that optimizes by hand.
    assert refused(context("ByHand", gradient_clip_val=1.0)).pointer == "/gradient_clip_val"
    with pytest.raises(CannotRun, match="ByHandAlone optimizes by hand") as validated:
        LightningTrainer().data_sections(context("ByHandAlone", gradient_clip_val=1.0).hyperparams, DataContext())
    assert validated.value.pointer == "/gradient_clip_val"


@pytest.mark.parametrize(
    ("callback", "init", "way_out"),
    [
        ("ModelCheckpoint", {}, "best-checkpoint"),
        ("StochasticWeightAveraging", {"swa_lrs": 0.1}, "WeightAveraging"),
        ("Timer", {"duration": "00:00:01:00"}, "max_steps"),
    ],
)
def test_callbacks_that_steer_a_trainer(callback: str, init: dict[str, Any], way_out: str) -> None:
    use = CallbackUse(use=ImportPath(f"lightning.pytorch.callbacks:{callback}"), init=init)
    ctx = context("Plain", callbacks=(use,))
    with pytest.raises(CannotRun) as validated:
        LightningTrainer().data_sections(ctx.hyperparams, DataContext())
    for error in (refused(ctx), validated.value):
        assert error.pointer == "/callbacks/0/use"
        assert way_out in (error.hint or "")


def test_a_part_of_the_trainer_is_named() -> None:
    fit = made(context("Internals"))
    with pytest.raises(TrainerInternal, match=r"`trainer\.fit_loop\.max_epochs` is a part of a Trainer"):
        fit.module.on_train_batch_start(None, 0)
    view = fit.view
    assert not hasattr(view, "save_checkpoint")
    assert not view.fit_loop.epoch_loop.val_loop._data_source.is_defined()
    view.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total.completed += 1
    assert view.global_step == 1
    with pytest.raises(TrainerInternal, match=r"`trainer\.fit_loop\.max_epochs`"):
        view.fit_loop.max_epochs = 2


def _rows_of_the_table() -> list[tuple[str, str]]:
    table = Path(__file__).parents[4] / "benchmarks/third_party/trainer_attributes.md"
    rows = [line.split("|") for line in table.read_text().splitlines() if line.startswith("| `")]
    return [(one[1].strip(" `"), one[3].strip()) for one in rows if "trainer." not in one[1]]


def test_attributes_that_packages_read_are_given_or_refused_as_the_table_says() -> None:
    rows, view = _rows_of_the_table(), made(context("Plain")).view
    assert len(rows) > 50
    for name, here in rows:
        found: Any = view
        refused = None
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except TrainerInternal as error:
            refused = error
        assert here == "given" if refused is None else here.removeprefix("refused: ") in str(refused.hint), name


def test_facts_of_a_trainer() -> None:
    job = Job(validation=section(40), test=section(33, 8), validate_every=5)
    view = made(context("Classifier", job)).view
    assert (view.num_val_batches, view.num_test_batches, view.enable_validation) == ([3], [5], True)
    assert (view.log_dir, view.scaler, view.node_rank, view.val_check_batch) == (view.default_root_dir, None, 0, 5)
    assert isinstance(view.accelerator, CPUAccelerator)
    assert made(context("Plain")).view.num_val_batches == []
    with pytest.raises(TrainerInternal, match="num_val_batches"):
        assert made(context("Classifier", Job(validation={"uris": ["a.parquet"]}))).view.num_val_batches


def test_checkpoints_and_callbacks_that_only_look_are_left_out_with_a_warning_where_a_module_brings_them() -> None:
    for module, left in (("Hooked", ["EarlyStopping"]), ("BringsMonitors", [])):
        with pytest.warns(UserWarning, match="is left out") as warned:
            fit = made(context(module))
        assert [type(one).__name__ for one in fit.view.callbacks] == left
        assert all(vars(one)["log"] == fit.module.log for one in fit.view.callbacks)
    assert "lr-monitor" in str(warned[0].message)
    use = CallbackUse(use=ImportPath("lightning.pytorch.callbacks:LearningRateMonitor"))
    assert "lr-monitor" in (refused(context("Plain", callbacks=(use,))).hint or "")


@pytest.mark.parametrize(
    ("validate_every", "accumulate", "found"),
    [
        ("epoch", 1, (1.0, 1)),
        (20, 1, (1.0, 1)),
        (40, 1, (1.0, 2)),
        (7, 1, (7, None)),
        (3, 2, (6, None)),
        (0, 1, (1.0, 1)),
    ],
)
def test_validations_in_the_words_of_the_trainer(
    validate_every: Any, accumulate: int, found: tuple[int | float, int | None]
) -> None:
    sections = {"validation": section(40)}
    ctx = context("Plain", Job(validate_every=validate_every, accumulate=accumulate, global_batch_size=8, **sections))
    ctx.dataset, ctx.steps_per_epoch = ItemNumbers(160, metadata=MARK), 20
    view = TrainerView(ctx, Classifier(), None, [], ctx.hyperparams)
    assert (view.val_check_interval, view.check_val_every_n_epoch) == found


def weights(path: Path, module: str = "Classifier") -> Any:
    ctx = context(module)
    ctx.model_handles = {"weights": str(path)}
    return made(ctx).module


@pytest.fixture(scope="module")
def written_by_lightning(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a checkpoint of ``pl.Trainer`` with such hyperparameters."""
    folder = tmp_path_factory.mktemp("theirs")
    model = Classifier()
    trainer = pl.Trainer(
        max_steps=1, accelerator="cpu", logger=False, default_root_dir=folder, limit_val_batches=0,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, datamodule=Data())

    def write(**hyperparameters: Any) -> Path:
        model.hparams.update(hyperparameters)
        trainer.save_checkpoint(folder / "their.ckpt")
        return folder / "their.ckpt"

    return write


def test_weights_of_a_checkpoint_that_lightning_wrote_are_read_without_running_its_code(
    written_by_lightning: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_by_lightning(given=argparse.Namespace(width=4))
    stored = torch.load(path, weights_only=False)["state_dict"]
    assert torch.equal(weights(path).net[0].weight, stored["net.0.weight"])
    with pytest.raises(InvalidData, match="the file holds objects beside tensors") as caught:
        weights(written_by_lightning(given=Data()))
    assert "weights_only=False" in (caught.value.hint or "")
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1"))
    with pytest.raises(HostcoreError, match=r"torch 2\.9\.1 cannot read safely"):
        weights(path)


@pytest.mark.parametrize("content", ["no weights at all", "", "{}"])
def test_weights_in_a_file_of_another_kind(tmp_path: Path, content: str) -> None:
    (tmp_path / "weights.txt").write_text(content)
    with pytest.raises(InvalidData) as caught:
        weights(tmp_path / "weights.txt")
    assert caught.value.pointer == "/weights"
    assert caught.value.hint


def test_what_is_exported_is_a_checkpoint_of_lightning_whose_weights_are_read(tmp_path: Path) -> None:
    fit = made(context("Classifier"))
    export(fit, tmp_path)
    exported = tmp_path / "model.ckpt"
    for read in (Classifier.load_from_checkpoint(exported), weights(exported)):
        assert torch.equal(read.net[0].weight, fit.module.net[0].weight)
    with pytest.raises(Exception, match="the weights cannot be loaded into Plain"):
        weights(exported, "Plain")


def test_lightning_that_is_missing_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostcore_lightning.trainer.find_spec", lambda _: None)
    with pytest.raises(CannotRun, match="lightning is not installed") as caught:
        LightningTrainer()
    assert caught.value.hint == install_command("lightning")


def test_the_trainer_is_named_without_importing_lightning() -> None:
    code = "import sys, hostcore_lightning.trainer; sys.exit('lightning' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_error_in_a_part_of_the_trainer_is_no_missing_attribute() -> None:
    def loader(_: str) -> None:
        raise AttributeError("'Data' object has no attribute 'rows'")

    ctx = context("Plain")
    view = TrainerView(ctx, Classifier(), None, [], ctx.hyperparams, loader=loader)
    with pytest.raises(RuntimeError, match=r"`trainer\.train_dataloader`: 'Data' object has no attribute 'rows'"):
        view.train_dataloader  # noqa: B018
