"""The trainer ``nemo``: the trainer ``lightning`` for modules in NeMo's style, in the words of the unified trainer API.

Such a module takes its whole configuration as one argument: ``def __init__(self, cfg, trainer=None)``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from hostcore_hookspecs import DataContext, ImportPath, InvalidData, InvalidSettings, StepContext, Uri
from hostcore_lightning import settings
from hostcore_lightning.trainer import LightningTrainer

#: What errors of the trainer ``lightning`` are about, as the job has it.
_WRITTEN: Final = {"init": "cfg"}


@attrs.frozen(kw_only=True)
class NemoHyperparams:
    """The job's ``hyperparams``, for ``nemo``."""

    model_id: str = attrs.field(metadata={"help": "What the model is called: `cfg.model_id`."})
    module: ImportPath[Any] = attrs.field(
        metadata={"help": "The LightningModule, whose constructor takes `cfg`: `my_nemo:Gpt`."}
    )
    config_path: Uri = attrs.field(
        default="",
        metadata={"help": "A YAML or JSON file, as an absolute path: `cfg`, or its section `model`."},
    )
    cfg: settings.Arguments = attrs.field(factory=dict, metadata={"help": "More of `cfg`, over what the file has."})
    dataset_text_field: str = attrs.field(
        default="text", metadata={"help": "The column with the text, a list of strings in each batch."}
    )
    max_seq_len: Annotated[int, Gt(1)] = attrs.field(
        default=2048, metadata={"help": "Tokens of a text, which the module cuts: `cfg.max_seq_len`."}
    )
    lr: Annotated[float, Gt(0)] = attrs.field(default=1e-4, metadata={"help": "`cfg.optim.lr`."})
    weight_decay: Annotated[float, Ge(0)] = attrs.field(default=0.0, metadata={"help": "`cfg.optim.weight_decay`."})
    warmup_steps: Annotated[int, Ge(0)] = attrs.field(default=0, metadata={"help": "`cfg.optim.sched.warmup_steps`."})

    # As the trainer `lightning` has them.
    callbacks: tuple[settings.CallbackUse, ...] = attrs.field(default=(), metadata={"help": "Lightning callbacks."})
    gradient_clip_val: Annotated[float, Gt(0)] | None = attrs.field(
        default=None, metadata={"help": "As in `Trainer(gradient_clip_val=…)`."}
    )
    find_unused_parameters: bool = attrs.field(default=False, metadata={"help": "On several ranks: as in DDPStrategy."})
    export_ckpt: bool = attrs.field(default=False, metadata={"help": "Write `model.ckpt` with the last checkpoint."})


class NemoTrainer(LightningTrainer):
    """Trains a module in NeMo's style, as ``"framework": "nemo"`` of the unified trainer API asks for it."""

    Hyperparams: ClassVar[type[Any]] = NemoHyperparams

    def __init__(self) -> None:
        super().__init__()
        self._settings: settings.Hyperparams | None = None

    def settings_of(self, hyperparams: NemoHyperparams) -> settings.Hyperparams:
        """Convert the job's hyperparameters to those of ``lightning``."""
        if self._settings is None:
            own = {one.name for one in attrs.fields(settings.Hyperparams)}
            same = {name: value for name, value in attrs.asdict(hyperparams, recurse=False).items() if name in own}
            self._settings = settings.Hyperparams(**same, init={"cfg": _configuration(hyperparams)})
        return self._settings

    def data_sections(self, hyperparams: Any, ctx: DataContext) -> None:
        """The data is that of the job: loaders that a module in NeMo's style has of its own are not asked."""

    def configure(self, ctx: StepContext) -> Any:
        """As ``lightning``; errors name what the job has written."""
        with _as_written():
            return super().configure(ctx)

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:  # noqa: ARG002 - nothing is drawn
        """Rows of the job's dataset: texts as lists of strings, numbers as tensors, by column."""
        if not isinstance(raw_batch, pa.RecordBatch):
            return raw_batch
        from hostcore_toolkit import to_tensors

        field = ctx.hyperparams.dataset_text_field
        if field not in raw_batch.schema.names:
            raise InvalidData(
                f"the data has no column {field!r}",
                pointer="/hyperparams/dataset_text_field",
                hint=f"it has {', '.join(map(repr, raw_batch.schema.names))}",
            )
        numbers = [
            one.name
            for one in raw_batch.schema
            if pa.types.is_integer(one.type) or pa.types.is_floating(one.type) or pa.types.is_boolean(one.type)
        ]
        others = [name for name in raw_batch.schema.names if name not in numbers]
        return to_tensors(raw_batch, numbers) | {name: raw_batch.column(name).to_pylist() for name in others}


def _configuration(written: NemoHyperparams) -> Any:
    """Return the module's ``cfg``: a ``DictConfig`` where OmegaConf is installed, as it is beside NeMo.

    Otherwise Lightning's ``AttributeDict``, which is read in the same ways.
    """
    optim = {
        "lr": written.lr,
        "weight_decay": written.weight_decay,
        "sched": {"warmup_steps": written.warmup_steps},
    }
    own = {
        "model_id": written.model_id,
        "max_seq_len": written.max_seq_len,
        "dataset_text_field": written.dataset_text_field,
        "optim": optim,
    }
    whole = merged(merged(_read(written.config_path), own), written.cfg)
    if find_spec("omegaconf") is not None:
        return import_module("omegaconf").OmegaConf.create(whole)
    from lightning.fabric.utilities.data import AttributeDict

    def with_attributes(value: Any) -> Any:
        return (
            AttributeDict({key: with_attributes(one) for key, one in value.items()})
            if isinstance(value, Mapping)
            else value
        )

    return with_attributes(whole)


def _read(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    try:
        found = YAML(typ="safe", pure=True).load(Path(path).read_text())
    except (OSError, ValueError, YAMLError) as error:
        raise InvalidSettings("/config_path", f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(found, Mapping):
        raise InvalidSettings("/config_path", f"{path} holds no mapping", hint="write the model's settings by name")
    inner = found.get("model", found)
    return inner if isinstance(inner, Mapping) else found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations, of which the second counts; sections of both are merged."""
    result = dict(below)
    for key, value in above.items():
        first = result.get(key)
        result[key] = merged(first, value) if isinstance(first, Mapping) and isinstance(value, Mapping) else value
    return result


@contextmanager
def _as_written() -> Iterator[None]:
    """Errors behind it name the settings as the job has them."""
    try:
        yield
    except InvalidSettings as error:
        first, slash, rest = (error.pointer or "")[1:].partition("/")
        if first in _WRITTEN:
            error.pointer = f"/{_WRITTEN[first]}{slash}{rest}"
        raise
