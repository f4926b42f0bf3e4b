"""The module, the data module and the callbacks of a configuration of ``LightningCLI``, as the CLI makes them.

The CLI itself parses and makes them: its links, defaults, factories of optimizers and types hold. It is stopped where
it would train, and its Trainer is a list of arguments.
"""

import functools
import inspect
import sys
from argparse import ArgumentError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from typing import Any, Final, NoReturn

import attrs
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import HostcoreError
from hostcore_lightning.settings import CannotRun, Hyperparams
from hostcore_toolkit.draws import random_states_kept

_SIGNATURE: Final = inspect.signature(LightningCLI.__init__)
_TRAINER_DEFAULTS: Final = {name: one.default for name, one in inspect.signature(Trainer.__init__).parameters.items()}


@attrs.frozen(kw_only=True, eq=False)
class MadeByCli:
    """Objects that a CLI has made of a configuration."""

    #: Not made, but of its class, unless the whole was asked for.
    module: LightningModule
    datamodule: LightningDataModule | None
    callbacks: list[Callback]
    #: Arguments of its Trainer, as far as they differ from Trainer's own defaults.
    trainer: Mapping[str, Any]


def made_by_cli(hyperparams: Hyperparams, *, seed: int, whole: bool = True) -> MadeByCli:
    """Make the objects of the job's ``config``, by its ``cli`` if it names one.

    :param seed: What ``seed_everything`` is, for arguments that are linked to it. Nothing is seeded.
    :param whole: False: make no module, where the rest does not need it.
    :raises CannotRun: The configuration does not fit.
    """
    if find_spec("jsonargparse") is None:
        raise CannotRun("/config", "jsonargparse is not installed", hint=install_command("lightning"))
    _check(hyperparams)
    if whole:
        return _made(hyperparams, seed, makes_module=True)
    with random_states_kept():
        try:
            return _made(hyperparams, seed, makes_module=False)
        except HostcoreError:
            raise
        except Exception:  # noqa: BLE001 - the data module, or a callback, may be linked to the module
            return _made(hyperparams, seed, makes_module=True)


def _check(hyperparams: Hyperparams) -> None:
    for name in ("init", "datamodule_init"):
        if getattr(hyperparams, name):
            section = "data" if name == "datamodule_init" else "model"
            raise CannotRun(f"/{name}", f"{name} stands beside config", hint=f"write it in config.{section}")
    if hyperparams.cli is None or inspect.isclass(hyperparams.cli.load()):
        return
    for name in ("module", "datamodule"):
        if getattr(hyperparams, name) is not None:
            raise CannotRun(
                f"/{name}",
                f"{name} stands beside cli, which is a function",
                hint=f"remove {name}: the function names it; or name the class of the CLI",
            )


def _made(hyperparams: Hyperparams, seed: int, *, makes_module: bool) -> MadeByCli:
    config = {**deepcopy(dict(hyperparams.config or {})), "seed_everything": seed}
    with _stopped(config, makes_module=makes_module), _no_arguments():
        try:
            _call(hyperparams)
        except _Stopped as stopped:
            cli = stopped.cli
        except ArgumentError as error:
            raise CannotRun("/config", f"it does not fit: {_short(error)}", hint=_hint(hyperparams)) from None
        else:
            raise CannotRun("/cli", f"{hyperparams.cli} makes no LightningCLI", hint="name a function that makes one")
    trainer: Any = cli.trainer
    if not isinstance(trainer, _Arguments):
        raise CannotRun(
            "/cli",
            f"{type(cli).__name__}.instantiate_trainer makes a Trainer itself",
            hint="return super().instantiate_trainer(…) from it",
        )
    callbacks = trainer.given.get("callbacks") or []
    return MadeByCli(
        module=cli.model,
        datamodule=cli.datamodule,
        callbacks=list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks],
        trainer={
            name: value
            for name, value in trainer.given.items()
            if name != "callbacks" and value is not None and value != _TRAINER_DEFAULTS.get(name)
        },
    )


def names_class(section: Any) -> bool:
    """Return whether a section of a configuration names its class."""
    return isinstance(section, str) or (isinstance(section, Mapping) and "class_path" in section)


def _call(hyperparams: Hyperparams) -> None:
    cli = LightningCLI if hyperparams.cli is None else hyperparams.cli.load()
    if not inspect.isclass(cli):
        cli()
        return
    if not issubclass(cli, LightningCLI):
        raise CannotRun("/cli", f"{hyperparams.cli} is no LightningCLI", hint="name a subclass, or a function")
    options: dict[str, Any] = {}
    for name, given, key in (("model", hyperparams.module, "model"), ("datamodule", hyperparams.datamodule, "data")):
        if given is not None:
            options[f"{name}_class"] = given.load()
            options[f"subclass_mode_{key}"] = names_class((hyperparams.config or {}).get(key))
    if hyperparams.cli is None:
        options["run"] = False
    cli(**options)


class _Stopped(BaseException):
    """The CLI has made everything; no Exception, which its caller might handle."""

    def __init__(self, cli: LightningCLI) -> None:
        super().__init__()
        self.cli = cli


class _Arguments:
    """Stands where the CLI makes its Trainer."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __getattr__(self, name: str) -> NoReturn:
        raise CannotRun(
            "/cli", f"the CLI reads trainer.{name}, and none runs here", hint="read it from self.config of the CLI"
        )


@contextmanager
def _stopped(config: dict[str, Any], *, makes_module: bool) -> Iterator[None]:
    """While entered, each CLI takes a configuration, and ends with :class:`_Stopped` where it has made everything."""
    of: Any = LightningCLI
    original = of.__init__

    @functools.wraps(original)
    def stopping(cli: Any, *args: Any, **options: Any) -> NoReturn:
        bound = _SIGNATURE.bind(cli, *args, **options)
        bound.apply_defaults()
        bound.arguments["args"] = {"subcommand": "fit", "fit": config} if bound.arguments["run"] else config
        bound.arguments["save_config_callback"] = None
        kind = type(cli)

        def parse_arguments(parser: Any, args: Any) -> None:
            for one in (parser, *getattr(cli, "_subcommand_parsers", {}).values()):
                one.exit_on_error = False  # an error, in place of a usage message and an exit
            kind.parse_arguments(cli, parser, args)

        def instantiate_classes() -> None:
            cli.trainer_class = _Arguments
            kind.instantiate_classes(cli)

        cli.parse_arguments, cli.instantiate_classes = parse_arguments, instantiate_classes
        cli._set_seed = cli._run_subcommand = lambda *_: None
        if not makes_module:
            _make_no_module(cli)
        original(*bound.args, **bound.kwargs)
        raise _Stopped(cli)

    of.__init__ = stopping
    try:
        yield
    finally:
        of.__init__ = original


def _make_no_module(cli: Any) -> None:
    """Have a CLI make an object of the module's class without calling its constructor."""

    def bare(cls: Any, *args: Any, applied_instantiation_links: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001 - of the module
        made_by_function = cls.__new__ is not LightningModule.__new__
        return cls(*args, **kwargs) if made_by_function else cls.__new__(cls)

    def add_instantiators() -> None:
        cli.parser.add_instantiator(bare, LightningModule, prepend=True)

    def add_configure_optimizers(subcommand: str | None) -> None:
        module, cli.model = cli.model, _OneWeight()
        type(cli)._add_configure_optimizers_method_to_model(cli, subcommand)
        vars(module).update({key: one for key, one in vars(cli.model).items() if key == "configure_optimizers"})
        cli.model = module

    cli._add_instantiators = add_instantiators
    cli._add_configure_optimizers_method_to_model = add_configure_optimizers


class _OneWeight(LightningModule):
    """A module for an optimizer to be made with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))


@contextmanager
def _no_arguments() -> Iterator[None]:
    """While entered, the process has no arguments, which the CLI would take for its own."""
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = arguments


def _short(error: ArgumentError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:400]


def _hint(hyperparams: Hyperparams) -> str:
    if hyperparams.cli is None and hyperparams.module is None:
        return (
            'name the classes if the file has none: "module", "datamodule", or "cli", the LightningCLI of your program'
        )
    return (
        "it is read as your program reads it: `python main.py fit --config config.yaml --print_config` shows the same"
    )
