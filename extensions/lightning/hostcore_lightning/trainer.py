"""The trainer ``lightning``: what the host calls. Lightning itself is imported when the first method is called."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import Capabilities, DataContext, StepContext, StepResult
from hostcore_lightning import settings
from hostcore_lightning.former_names import find_former_names
from hostcore_lightning.indices import INDEX, MARK
from hostcore_lightning.settings import CannotRun

if TYPE_CHECKING:
    from hostcore_lightning.data import Loaders
    from hostcore_lightning.fit import Fit

find_former_names()  # here, since the host imports the job's modules before it constructs the trainer


class LightningTrainer:
    """Trains a LightningModule as it is."""

    Hyperparams: ClassVar[type[Any]] = settings.Hyperparams
    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "bf16", "fp16"), distributed=True, repeatable=True)

    def __init__(self) -> None:
        if find_spec("lightning") is None:
            raise CannotRun("/module", "lightning is not installed", hint=install_command("lightning"))
        self._loaders: Loaders | None = None
        self._is_prepared = False

    def settings_of(self, hyperparams: Any) -> settings.Hyperparams:
        """Return the job's hyperparameters in the form of this trainer."""
        return cast(settings.Hyperparams, hyperparams)

    # Data.

    def data_sections(self, hyperparams: Any, ctx: DataContext) -> Mapping[str, Mapping[str, Any]] | None:
        """The data of the data module, or of the module's own loaders, fed by index; None if the job has all of it.

        ``prepare_data`` is called here, by one process of a machine.
        """
        from hostcore_lightning.configuring import check_clipping, check_parts
        from hostcore_lightning.data import brings_data

        check_parts(self.settings_of(hyperparams), seed=ctx.seed)
        if not brings_data(self.settings_of(hyperparams), seed=ctx.seed):
            return None
        loaders = self._data(hyperparams, ctx.seed, ctx.rank, ctx.world_size)
        if loaders.datamodule is None:  # a module that is made for its loaders
            check_clipping(loaders.owner, self.settings_of(hyperparams))
        loaders.prepare(ctx.cache_dir)
        self._is_prepared = True
        return loaders.sections()

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        """The rows of these numbers, put together by the loader's ``collate_fn``; other data as tensors by column."""
        if not isinstance(raw_batch, pa.RecordBatch):
            return raw_batch
        if raw_batch.schema.metadata != MARK:
            from hostcore_toolkit import to_tensors

            return to_tensors(raw_batch)
        loaders, epoch = self._data_of(ctx), _epoch_of(rng)
        loaders.loader(ctx.split)  # made outside of what the batch is seeded with
        seed = int(rng.integers(2**32))
        return loaders.batch(raw_batch.column(INDEX).to_pylist(), ctx.split, seed=seed, epoch=epoch)

    def _data_of(self, ctx: StepContext) -> "Loaders":
        return self._data(ctx.hyperparams, ctx.job.seed, ctx.rank, ctx.world_size)

    def _data(self, hyperparams: Any, seed: int, rank: int, world_size: int) -> "Loaders":
        from hostcore_lightning.data import Loaders

        if self._loaders is None:
            self._loaders = Loaders(self.settings_of(hyperparams), seed=seed, rank=rank, world_size=world_size)
        return self._loaders

    # The order in which the host calls the rest is in hostcore/worker/loop.py.

    def setup(self, ctx: StepContext) -> None:
        """Refuse a job without data, and call ``prepare_data`` if that was not done."""
        if ctx.dataset is None:
            raise CannotRun(
                "/module", "there are no rows to train on", hint='name a "datamodule", or give the job a "dataset"'
            )
        if self._is_prepared or ctx.dataset.schema.metadata != MARK:
            return
        if ctx.local_rank == 0:
            self._data_of(ctx).prepare()
        ctx.any_rank(False)  # the others wait

    def configure(self, ctx: StepContext) -> "Fit":
        """Make the module, the callbacks and the optimizers, with Lightning's hooks up to ``on_fit_start``."""
        from hostcore_lightning.configuring import configured

        given = self.settings_of(ctx.hyperparams)
        has_datamodule = given.datamodule is not None or given.config is not None
        datamodule = self._data_of(ctx).datamodule if has_datamodule else None
        if self._loaders is not None and (error := self._loaders.test_error) is not None:
            of = type(self._loaders.owner).__name__
            ctx.warn(f"the run has no test: test_dataloader of {of} raised {type(error).__name__}: {error}")

        def loader(split: str) -> Any:
            is_by_index = ctx.dataset is not None and ctx.dataset.schema.metadata == MARK
            return self._data_of(ctx).loader(split) if is_by_index else None

        return configured(ctx, datamodule, given, loader)

    def prepare_batch(self, raw_batch: Any, state: "Fit") -> Any:
        """A batch on the device, by Lightning's hooks for that."""
        return state.prepared(raw_batch)

    def train_step(self, prepared_batch: Any, state: "Fit", ctx: StepContext) -> StepResult:
        """One update, or what a module with manual optimization makes of it."""
        return state.train(prepared_batch if ctx.job.accumulate > 1 else (prepared_batch,))

    def validate_step(self, prepared_batch: Any, state: "Fit") -> StepResult:
        """Call ``validation_step``; what it logs for the whole validation is in :meth:`evaluation_metrics`."""
        return state.evaluate(prepared_batch, "validation")

    def test_step(self, prepared_batch: Any, state: "Fit") -> StepResult:
        """Call ``test_step``."""
        return state.evaluate(prepared_batch, "test")

    def evaluation_metrics(self, state: "Fit") -> Mapping[str, Any]:
        """Return the logged metrics, reduced; after a validation, those of the step's or epoch's end before it too."""
        return state.evaluated()

    def state_dict(self, state: "Fit") -> dict[str, object]:
        """In the layout of Lightning's checkpoints, with the states of metrics and loops beside."""
        from hostcore_lightning.checkpoint import captured

        payload = captured(state)
        if self._loaders is not None and state.in_epoch:  # else the next epoch begins from its beginning
            number = (state.last_index + 1) * state.view.world_size
            stream = self._loaders.stream_state(state.view.current_epoch, number)
            payload["hostcore"] |= {"stream": stream} if stream else {}
        return payload

    def load_state_dict(self, state: "Fit", payload: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        from hostcore_lightning.checkpoint import restore

        restore(state, payload)
        stream = payload["hostcore"].get("stream")
        if stream is not None and state.ctx.dataset is not None and state.ctx.dataset.schema.metadata == MARK:
            self._data_of(state.ctx).go_on_from(stream, state.ctx.warn)

    def save_checkpoint(self, state: "Fit", output_dir: str, final: bool, ctx: StepContext) -> Mapping[str, Any] | None:
        """With ``export_ckpt``, write ``model.ckpt`` for Lightning beside the last checkpoint."""
        if not (final and self.settings_of(ctx.hyperparams).export_ckpt):
            return None
        from hostcore_lightning.checkpoint import export

        return export(state, Path(output_dir))

    def teardown(self, state: "Fit") -> None:
        """Call the hooks that end a fit."""
        state.tear_down()


def _epoch_of(rng: np.random.Generator) -> int:
    """The epoch of a batch, which the generator that the host gives for it is keyed with; 0 for another generator."""
    state: Any = rng.bit_generator.state["state"]
    return int(state["key"][1]) if isinstance(rng.bit_generator, np.random.Philox) else 0
