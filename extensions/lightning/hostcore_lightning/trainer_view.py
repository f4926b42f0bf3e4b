"""``self.trainer`` of a module, a data module and callbacks: the state of the run, without control over it.

Lightning's own code does Lightning's work: ``LightningModule.log`` with its results, ``LightningOptimizer``, the
precision plugins, the transfer of batches. It looks here for what it takes from a ``Trainer``, under names that begin
with an underscore among them; the tested range of versions is in ``pyproject.toml``.
"""

import logging
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist
from lightning.fabric.utilities.apply_func import convert_tensors_to_scalars
from lightning.fabric.utilities.distributed import _all_gather_ddp_if_available, _sync_ddp_if_available
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.accelerators import Accelerator, CPUAccelerator, CUDAAccelerator, MPSAccelerator
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.overrides.distributed import prepare_for_backward
from lightning.pytorch.plugins import MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.strategies.ddp import _DDPForwardRedirection
from lightning.pytorch.trainer.connectors.data_connector import _DataHookSelector
from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import _LoggerConnector
from lightning.pytorch.trainer.connectors.logger_connector.result import _METRICS, _ResultCollection
from lightning.pytorch.trainer.states import RunningStage, TrainerFn, TrainerState
from lightning.pytorch.utilities.enums import GradClipAlgorithmType
from torch.nn.parallel import DistributedDataParallel

from hostcore_hookspecs import StepContext
from hostcore_lightning.settings import Hyperparams, TrainerInternal


class HostStrategy(SingleDeviceStrategy):
    """One device for each of the host's ranks, whose collectives are torch's default group."""

    def __init__(self, ctx: StepContext) -> None:
        super().__init__(device=torch.device(ctx.device), precision_plugin=_precision(ctx))
        self._forward_redirection = _DDPForwardRedirection()
        self.global_rank = ctx.rank
        self.local_rank = ctx.local_rank
        self.world_size = ctx.world_size

    @property
    def is_global_zero(self) -> bool:
        """True on the first rank."""
        return self.global_rank == 0

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The mean, or the sum, over the ranks."""
        return (
            _sync_ddp_if_available(tensor, group, reduce_op=reduce_op) if isinstance(tensor, torch.Tensor) else tensor
        )

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """The tensors of all ranks, stacked."""
        return _all_gather_ddp_if_available(tensor, group=group, sync_grads=sync_grads)

    def barrier(self, *_: Any, **__: Any) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            dist.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """An object of one rank, on all."""
        if self.world_size == 1:
            return obj
        objects = [obj]
        dist.broadcast_object_list(objects, src)
        return objects[0]

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Combine a decision of all ranks: by and, or by or."""
        count = int(self.reduce(torch.tensor(int(decision), device=self.root_device), reduce_op="sum"))
        return count == self.world_size if all else count > 0

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        """Before the gradients: DDP does not see the forward pass end where a module calls ``manual_backward``."""
        if isinstance(self.model, DistributedDataParallel):
            assert self.lightning_module is not None
            if not self.lightning_module.automatic_optimization:
                prepare_for_backward(self.model, closure_loss)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own, not through DDP: there are no gradients to reduce."""
        assert self.lightning_module is not None
        with self.precision_plugin.val_step_context():
            return self.lightning_module.validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`validation_step`."""
        assert self.lightning_module is not None
        with self.precision_plugin.test_step_context():
            return self.lightning_module.test_step(*args, **kwargs)


def _precision(ctx: StepContext) -> Precision:
    kind = torch.device(ctx.device).type
    if ctx.job.precision == "bf16":
        return MixedPrecision("bf16-mixed", kind)
    if ctx.job.precision == "fp16":
        return MixedPrecision("16-mixed", kind, scaler=ctx.scaler)
    return Precision()


class Results(_ResultCollection):
    """Values that a module logs. Values for a progress bar stay tensors, which Lightning reads at every batch.

    Reading makes a GPU wait.
    """

    def metrics(self, on_step: bool) -> _METRICS:
        """Return the values of a batch or an epoch, unread."""
        shown = [one for _, one in self.valid_items() if one.meta.prog_bar]
        for one in shown:
            one.meta.prog_bar = False
        try:
            found = super().metrics(on_step)
        finally:
            for one in shown:
                one.meta.prog_bar = True
        found["pbar"] = {}
        for one in shown:
            value: Any = self._get_cache(one, on_step)
            if value is not None:
                found["pbar"][self._forked_name(one, on_step)[1]] = value
        return found


class LoopFacts:
    """A part of Lightning's loops: facts of the run under the names that modules read, and errors for the rest.

    :param path: Its name, from ``trainer`` on.
    :param facts: Values by name; a mapping is a further part.
    """

    def __init__(self, path: str, facts: Mapping[str, Any]) -> None:
        vars(self).update(_path=path, _facts=facts)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}.{name}"
        if name not in self._facts:
            raise _internal(path)
        found = self._facts[name]
        return LoopFacts(path, found) if isinstance(found, Mapping) else found

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise _internal(f"{self._path}.{name}")


class ManualSteps:
    """Counter of the steps of optimizers that a module makes by hand, to be raised by modules that step them bare."""

    def __init__(self, view: "TrainerView") -> None:
        self._view = view

    @property
    def completed(self) -> int:
        """The run's count, as ``global_step``."""
        return self._view.global_step

    @completed.setter
    def completed(self, count: int) -> None:
        self._view.global_step = count


_log = logging.getLogger("lightning.pytorch.hostcore")
_ACCELERATORS: Final[Mapping[str, type[Accelerator]]] = {
    "cpu": CPUAccelerator,
    "cuda": CUDAAccelerator,
    "mps": MPSAccelerator,
}
#: Ways out of what would steer the run.
_INSTEAD: Final[Mapping[str, str]] = {
    "save_checkpoint": 'hostcore writes checkpoints: "checkpoint_every"; with "export_ckpt", model.ckpt, too',
    **dict.fromkeys(
        ("fit", "fit_loop", "_run", "_run_stage"), 'a job is one training: begin the next one by a job with "weights"'
    ),
    **dict.fromkeys(
        ("validate", "validate_loop"),
        'hostcore validates: "validate_every"; later, `hostcore evaluate JOB --checkpoint C`',
    ),
    **dict.fromkeys(
        ("test", "test_loop"), "hostcore tests at the end of the run; later, `hostcore evaluate JOB --checkpoint C`"
    ),
    **dict.fromkeys(
        ("predict", "predict_loop"),
        'a job does not predict: "export_ckpt" in the hyperparams writes model.ckpt for a program that does',
    ),
}


def _internal(name: str) -> TrainerInternal:
    return TrainerInternal(
        "/module",
        f"`{name}` is a part of a Trainer, and none runs here",
        hint=_INSTEAD.get(name.removeprefix("trainer."))
        or "hostcore runs the loop: use what the page 'Coming from Lightning' lists, or a hostcore callback. What a "
        f"Trainer of the package's own has, the module's `setup` may set: self.{name} = …",
    )


class TrainerView:
    """Stands where a module expects its Trainer."""

    predicting = False
    barebones = False
    fast_dev_run = False
    overfit_batches = 0
    #: The host's reporters take what the module logs.
    logger = None
    progress_bar_callback = None
    checkpoint_callback = None
    early_stopping_callback = None
    num_nodes = 1
    node_rank = 0
    min_epochs = None
    min_steps = None
    reload_dataloaders_every_n_epochs = 0
    received_sigterm = False
    interrupted = False
    ckpt_path = None
    #: Of the batches of a split.
    limit_train_batches = limit_val_batches = limit_test_batches = limit_predict_batches = 1.0
    #: Nothing is predicted.
    predict_dataloaders = None
    num_predict_batches: tuple[int, ...] = ()
    #: Whether the training batch at hand is the last of its epoch.
    is_last_batch = False

    def __init__(
        self,
        ctx: StepContext,
        module: LightningModule,
        datamodule: LightningDataModule | None,
        callbacks: list[Callback],
        hyperparams: Hyperparams,
        *,
        loader: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self._ctx = ctx
        self._loader = loader
        self.lightning_module = module
        self.datamodule = datamodule
        self.callbacks = callbacks
        self.loggers: list[Any] = []
        self.checkpoint_callbacks: list[Callback] = []
        self.early_stopping_callbacks = [one for one in callbacks if isinstance(one, EarlyStopping)]
        self.profiler = PassThroughProfiler()
        self.strategy = HostStrategy(ctx)
        self.strategy.connect(module)
        self.state = TrainerState(fn=TrainerFn.FITTING, stage=RunningStage.TRAINING)
        self.gradient_clip_val = hyperparams.gradient_clip_val
        self.gradient_clip_algorithm = (
            GradClipAlgorithmType(hyperparams.gradient_clip_algorithm) if hyperparams.gradient_clip_val else None
        )
        #: Finished epochs, and steps of optimizers.
        self.current_epoch = 0
        self.global_step = 0
        self.num_training_batches = ctx.steps_per_epoch * ctx.job.accumulate if ctx.dataset is not None else 0
        self.val_check_interval, self.check_val_every_n_epoch = self._validations()
        self._results = Results(training=True)
        self._logger_connector = _LoggerConnector(self)  # type: ignore[arg-type]
        self._data_connector = SimpleNamespace(_datahook_selector=_DataHookSelector(module, datamodule))
        self._accelerator_connector = SimpleNamespace(is_distributed=ctx.world_size > 1)
        self._active_loop = None
        self._should_stop = False

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(type(self), name, None), property):  # an AttributeError of code that it runs
            try:
                return object.__getattribute__(self, name)
            except TrainerInternal:
                raise
            except AttributeError as error:
                raise RuntimeError(f"`trainer.{name}`: {error}") from error
        raise _internal(f"trainer.{name}")

    @property
    def fit_loop(self) -> LoopFacts:
        """Of Lightning's loops: whether there is a validation, and the count of steps made by hand."""
        has_validation = self._ctx.job.validation is not None
        return LoopFacts(
            "trainer.fit_loop",
            {
                "epoch_loop": {
                    "val_loop": {"_data_source": SimpleNamespace(is_defined=lambda: has_validation)},
                    "manual_optimization": {"optim_step_progress": {"total": ManualSteps(self)}},
                }
            },
        )

    def _validations(self) -> tuple[int | float, int | None]:
        """Return the job's validations as ``val_check_interval`` and ``check_val_every_n_epoch``."""
        job = self._ctx.job
        if job.validation is None or job.validate_every in (0, "epoch"):
            return 1.0, 1
        batches = int(job.validate_every) * job.accumulate
        epochs, rest = divmod(batches, self.num_training_batches or batches + 1)
        return (batches, None) if rest else (1.0, epochs)

    # Where the run stands.

    @property
    def training(self) -> bool:
        """True during training."""
        return self.state.stage == RunningStage.TRAINING

    @property
    def validating(self) -> bool:
        """True during validation."""
        return self.state.stage == RunningStage.VALIDATING

    @property
    def sanity_checking(self) -> bool:
        """Return whether the first validation batches are checked before the training."""
        return self.state.stage == RunningStage.SANITY_CHECKING

    @property
    def testing(self) -> bool:
        """True during a test."""
        return self.state.stage == RunningStage.TESTING

    @property
    def max_epochs(self) -> int:
        """That of the job; -1: no limit."""
        return -1 if self._ctx.job.epochs is None else self._ctx.job.epochs

    @property
    def max_steps(self) -> int:
        """That of the job; -1: no limit."""
        return self._ctx.job.max_steps or -1

    @property
    def estimated_stepping_batches(self) -> int:
        """Steps of the whole run."""
        return self._ctx.run_state.total_steps

    @property
    def accumulate_grad_batches(self) -> int:
        """Micro-batches of a step."""
        return self._ctx.job.accumulate

    @property
    def log_every_n_steps(self) -> int:
        """Interval of the host's metrics, in steps."""
        return self._ctx.job.metric_every

    @property
    def should_stop(self) -> bool:
        """True once a callback has asked for the end; to be set by them."""
        return self._should_stop

    @should_stop.setter
    def should_stop(self, stop: bool) -> None:
        if stop and not self._should_stop:
            self._ctx.request_stop("the Lightning module or one of its callbacks set trainer.should_stop")
        self._should_stop = self._should_stop or stop

    @property
    def evaluating(self) -> bool:
        """True during a validation or a test."""
        return self.validating or self.testing

    # The data.

    @property
    def train_dataloader(self) -> Any:
        """The loader whose dataset is trained on; the host does not iterate it. None: the data is the job's."""
        return self._loader("train")

    @property
    def val_dataloaders(self) -> Any:
        """As :attr:`train_dataloader`, of the validation."""
        return self._loader("validation")

    @property
    def test_dataloaders(self) -> Any:
        """As :attr:`train_dataloader`, of the test."""
        return self._loader("test")

    @property
    def enable_validation(self) -> bool:
        """Return whether the job validates."""
        return self._ctx.job.validation is not None and bool(self._ctx.job.validate_every)

    @property
    def num_val_batches(self) -> list[int]:
        """Batches of a validation on this rank."""
        return self._batches("num_val_batches", self._ctx.job.validation)

    @property
    def num_test_batches(self) -> list[int]:
        """Batches of the test on this rank."""
        return self._batches("num_test_batches", self._ctx.job.test)

    @property
    def val_check_batch(self) -> int | float:
        """Training batches between validations."""
        return self.val_check_interval if isinstance(self.val_check_interval, int) else self.num_training_batches

    def _batches(self, name: str, section: Mapping[str, Any] | None) -> list[int]:
        if section is None:
            return []
        if (rows := section.get("rows")) is None:  # data of the job's, which is counted where it is read
            raise _internal(f"trainer.{name}")
        return [math.ceil(rows / (section.get("batch_size", 32) * self.world_size))]

    # What it runs on.

    @property
    def world_size(self) -> int:
        """Ranks."""
        return self.strategy.world_size

    @property
    def global_rank(self) -> int:
        """The number of the rank."""
        return self.strategy.global_rank

    @property
    def local_rank(self) -> int:
        """The number of the rank on its machine."""
        return self.strategy.local_rank

    @property
    def num_devices(self) -> int:
        """Devices, one for each rank."""
        return self.strategy.world_size

    @property
    def device_ids(self) -> list[int]:
        """The number of this rank's device."""
        return [self.strategy.root_device.index or 0]

    @property
    def is_global_zero(self) -> bool:
        """True on the first rank."""
        return self.strategy.is_global_zero

    @property
    def accelerator(self) -> Accelerator:
        """Lightning's name for the kind of device."""
        return _ACCELERATORS[self.strategy.root_device.type]()

    @property
    def scaler(self) -> Any:
        """The scaler of fp16; None with another precision."""
        return getattr(self.precision_plugin, "scaler", None)

    def print(self, *values: object, sep: str = " ", **_: Any) -> None:
        """Write to the run's output, on the first rank of each machine, by Lightning's log."""
        if self.local_rank == 0:
            _log.info(sep.join(map(str, values)))

    @property
    def log_dir(self) -> str:
        """The run's folder, as from Lightning without a logger."""
        return self.default_root_dir

    @property
    def default_root_dir(self) -> str:
        """The run's folder."""
        return self._ctx.run_dir

    @property
    def model(self) -> torch.nn.Module | None:
        """The module, as DDP wraps it on several ranks."""
        return self.strategy.model

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of ``configure_optimizers``."""
        return self.strategy.optimizers

    @property
    def lr_scheduler_configs(self) -> list[Any]:
        """Those of ``configure_optimizers``."""
        return self.strategy.lr_scheduler_configs

    @property
    def precision_plugin(self) -> Precision:
        """Lightning's plugin for scaling, casting and clipping."""
        return self.strategy.precision_plugin

    @property
    def precision(self) -> str:
        """As Lightning calls it: ``32-true``, ``bf16-mixed`` or ``16-mixed``."""
        return str(self.precision_plugin.precision)

    # What the module has logged.

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        """By name, as callbacks and plateau schedulers look for it."""
        return self._logger_connector.callback_metrics

    @property
    def logged_metrics(self) -> dict[str, torch.Tensor]:
        """Metrics logged with ``logger=True``."""
        return self._logger_connector.logged_metrics

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """Metrics logged with ``prog_bar=True``."""
        shown: dict[str, float] = convert_tensors_to_scalars(self._logger_connector.progress_bar_metrics)
        return shown
