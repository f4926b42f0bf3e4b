"""The module, the data module and the callbacks of a job: by its import paths, or by its ``LightningCLI``."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
from lightning.pytorch import Callback, LightningDataModule, LightningModule

from hostcore_lightning.making import class_of, made
from hostcore_lightning.settings import CannotRun, Hyperparams

#: Where a configuration of ``LightningCLI`` has its callbacks.
CONFIGURED: Final = "/config/trainer/callbacks"


@attrs.frozen(kw_only=True, eq=False)
class TrainedParts:
    """Module and callbacks of a job."""

    module: LightningModule
    #: Each with its place in the hyperparameters.
    callbacks: list[tuple[Callback, str]]
    #: Arguments that a ``LightningCLI`` gives its Trainer.
    trainer: Mapping[str, Any]


def made_parts(hyperparams: Hyperparams, *, seed: int) -> TrainedParts:
    """Make the module and the callbacks.

    :param seed: The job's.
    :raises CannotRun: They cannot be made.
    """
    callbacks: list[tuple[Callback, str]] = []
    trainer: Mapping[str, Any] = {}
    if hyperparams.config is None:
        module = made_module(hyperparams, seed=seed)
    else:
        from hostcore_lightning.cli_config import made_by_cli

        by_cli = made_by_cli(hyperparams, seed=seed)
        module, trainer = by_cli.module, by_cli.trainer
        callbacks = [(one, CONFIGURED) for one in by_cli.callbacks]
    for index, use in enumerate(hyperparams.callbacks):
        pointer = f"/callbacks/{index}/use"
        callbacks.append((made(use.use, use.init, Callback, pointer=pointer), pointer))
    return TrainedParts(module=module, callbacks=callbacks, trainer=trainer)


def made_module(hyperparams: Hyperparams, *, seed: int) -> LightningModule:
    """Make the module alone."""
    if hyperparams.config is not None:
        from hostcore_lightning.cli_config import made_by_cli

        return made_by_cli(hyperparams, seed=seed).module
    found: LightningModule = made(_named(hyperparams), hyperparams.init, LightningModule, pointer="/module")
    return found


def made_datamodule(hyperparams: Hyperparams, *, seed: int) -> LightningDataModule | None:
    """Make the data module; None if the job names none."""
    if hyperparams.config is not None:
        from hostcore_lightning.cli_config import made_by_cli

        return made_by_cli(hyperparams, seed=seed, whole=False).datamodule
    if hyperparams.datamodule is None:
        return None
    found: LightningDataModule = made(
        hyperparams.datamodule, hyperparams.datamodule_init, LightningDataModule, pointer="/datamodule"
    )
    return found


@attrs.frozen(kw_only=True, eq=False)
class PartClasses:
    """Classes of the module and the callbacks of a job."""

    #: With the methods that a ``LightningCLI`` adds to the module.
    module: type
    #: Each with its place in the hyperparameters.
    callbacks: list[tuple[type, str]]
    #: As in :class:`TrainedParts`.
    trainer: Mapping[str, Any]


def classes_of(hyperparams: Hyperparams, *, seed: int) -> PartClasses:
    """Return the classes of the module and the callbacks; what is named as a class is not made.

    :raises CannotRun: They cannot be made of their arguments.
    """
    callbacks: list[tuple[type, str]] = []
    trainer: Mapping[str, Any] = {}
    if hyperparams.config is None:
        module = class_of(_named(hyperparams), hyperparams.init, LightningModule, pointer="/module")
    else:
        from hostcore_lightning.cli_config import made_by_cli

        by_cli = made_by_cli(hyperparams, seed=seed, whole=False)
        added = {name: one for name, one in vars(by_cli.module).items() if name == "configure_optimizers"}
        module = type(by_cli.module)
        module = type(module.__name__, (module,), added) if added else module
        callbacks, trainer = [(type(one), CONFIGURED) for one in by_cli.callbacks], by_cli.trainer
    for index, use in enumerate(hyperparams.callbacks):
        pointer = f"/callbacks/{index}/use"
        callbacks.append((class_of(use.use, use.init, Callback, pointer=pointer), pointer))
    return PartClasses(module=module, callbacks=callbacks, trainer=trainer)


def has_datamodule(hyperparams: Hyperparams, *, seed: int) -> bool:
    """Return whether the job names a data module."""
    if hyperparams.config is None:
        return hyperparams.datamodule is not None
    return made_datamodule(hyperparams, seed=seed) is not None


def _named(hyperparams: Hyperparams) -> Any:
    if hyperparams.module is None:
        raise CannotRun(
            "/module", "the job names no module", hint='"module": "my_models:Net"; or "config", of LightningCLI'
        )
    return hyperparams.module
