"""Hyperparameters of the trainer ``lightning``, and the errors for those that it cannot run."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs
from annotated_types import Gt

from hostcore_hookspecs import ImportPath, InvalidSettings, Place


class CannotRun(InvalidSettings):
    """A module, a data module or a callback asks for what the host does not do, or lacks what it needs."""

    code = "lightning.unsupported"


class TrainerInternal(CannotRun, AttributeError):
    """The code of a module, a data module or a callback asks for a part of Lightning's Trainer that is not there."""

    code = "lightning.trainer_internal"


#: Keyword arguments, in which code of the job's may find its files.
Arguments = Annotated[Mapping[str, Any], Place()]


@attrs.frozen(kw_only=True)
class CallbackUse:
    """One Lightning callback."""

    use: ImportPath[Any] = attrs.field(metadata={"help": "Its class: `my_callbacks:Ema`; named as the module is."})
    init: Arguments = attrs.field(factory=dict, metadata={"help": "What its constructor is given."})


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``."""

    module: ImportPath[Any] | None = attrs.field(
        default=None,
        metadata={
            "help": "The LightningModule: a class, `my_models:Classifier`, a function or classmethod that returns an "
            "instance, or an instance. Required unless `config` or `cli` names it."
        },
    )
    init: Arguments = attrs.field(
        factory=dict,
        metadata={
            "help": 'What its constructor is given. An argument may be an object: `{"$object": "my_losses:Focal", '
            '"init": {…}}`; without `init`, the object itself.'
        },
    )
    datamodule: ImportPath[Any] | None = attrs.field(
        default=None,
        metadata={"help": "The LightningDataModule, named likewise. Without one, the module's own loaders are used."},
    )
    datamodule_init: Arguments = attrs.field(factory=dict, metadata={"help": "What its constructor is given."})
    config: Arguments | None = attrs.field(
        default=None,
        metadata={
            "help": "A configuration of LightningCLI, in place of `init` and `datamodule_init`: `model`, `data`, "
            "`optimizer`, `trainer.callbacks`, … `hostcore from-lightning config.yaml` writes the job."
        },
    )
    cli: ImportPath[Any] | None = attrs.field(
        default=None,
        metadata={
            "help": "What reads `config`: a subclass of LightningCLI, or a function that makes one, `main:cli_main`. "
            "Without it, a LightningCLI of `module` and `datamodule`, or of the classes that `config` names."
        },
    )
    callbacks: tuple[CallbackUse, ...] = attrs.field(
        default=(), metadata={"help": "Lightning callbacks, in the order in which they are called."}
    )
    gradient_clip_val: Annotated[float, Gt(0)] | None = attrs.field(
        default=None, metadata={"help": "As in `Trainer(gradient_clip_val=…)`; for automatic optimization."}
    )
    gradient_clip_algorithm: Literal["norm", "value"] = attrs.field(
        default="norm", metadata={"help": "As in `Trainer(gradient_clip_algorithm=…)`."}
    )
    find_unused_parameters: bool = attrs.field(
        default=False, metadata={"help": "On several ranks: as in `DDPStrategy(find_unused_parameters=…)`."}
    )
    capture: Literal["auto", "off"] = attrs.field(
        default="auto",
        metadata={
            "help": "`auto`: a checkpoint also holds attributes that change in training and that no state_dict has; "
            "`off`: a warning names them."
        },
    )
    export_ckpt: bool = attrs.field(
        default=False, metadata={"help": "Write `model.ckpt`, for `load_from_checkpoint`, with the last checkpoint."}
    )
