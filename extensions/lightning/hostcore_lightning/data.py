"""The loaders of a data module or a module, read by number: the host owns batches, ranks and the place in the data.

A ``DataLoader`` only describes reading; see :mod:`hostcore_lightning.readers`. What a data module draws in its
constructor, in ``setup`` and where it makes its loaders follows from the job's seed alone: each process that reads rows
makes one of its own, and all must split the data alike.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader

from hostcore_hookspecs import InvalidData
from hostcore_lightning.making import overrides
from hostcore_lightning.parts import classes_of, has_datamodule, made_datamodule, made_module
from hostcore_lightning.preparing import prepare_once
from hostcore_lightning.readers import ENDLESS, LoaderReader, Refuse, StreamReader, reader_of
from hostcore_lightning.settings import CannotRun, Hyperparams, TrainerInternal
from hostcore_toolkit.draws import seeded

SOURCE: Final = "hostcore-lightning/indices"
_METHODS: Final = {"train": "train_dataloader", "validation": "val_dataloader", "test": "test_dataloader"}
_SECTIONS: Final = {"train": "dataset", "validation": "validation", "test": "test"}
#: The module's method that a split is of no use without.
_STEPS: Final = {"validation": "validation_step", "test": "test_step"}


class DataView:
    """Stand-in for ``self.trainer`` of a data module before there is one, and in processes where there is none.

    :param pointer: Where the hyperparameters name it.
    """

    #: The host's reporters take what the module logs.
    logger = None
    loggers: tuple[Any, ...] = ()

    def __init__(self, pointer: str, *, rank: int, world_size: int) -> None:
        self._pointer = pointer
        self.global_rank = rank
        self.world_size = world_size
        self.is_global_zero = rank == 0

    def __getattr__(self, name: str) -> NoReturn:
        raise TrainerInternal(
            self._pointer,
            f"`trainer.{name}` is not known where the data is prepared: processes read it that have no Trainer",
            hint="give the value to the constructor; known are world_size, global_rank and is_global_zero",
        )


class Loaders:
    """Loaders of a job's data module, or of the module itself.

    :param seed: The job's.
    """

    def __init__(self, hyperparams: Hyperparams, *, seed: int, rank: int = 0, world_size: int = 1) -> None:
        self._hyperparams, self._seed = hyperparams, seed
        self._several = world_size > 1
        with seeded(seed):
            #: None: the module has the loaders.
            self.datamodule = made_datamodule(hyperparams, seed=seed)
            #: What has the methods. The module is one of its own, not that which is trained.
            self.owner: Any = self.datamodule or made_module(hyperparams, seed=seed)
        self._pointer = "/module" if self.datamodule is None else "/datamodule"
        if hyperparams.config is not None:
            self._pointer = "/config"
        view: Any = DataView(self._pointer, rank=rank, world_size=world_size)
        self.owner.trainer = view
        self._module_class = classes_of(hyperparams, seed=seed).module
        self._stages: set[str] = set()
        self._readers: dict[str, LoaderReader | None] = {}
        #: The error for which a test was left out; None: there is none to be left out.
        self.test_error: Exception | None = None

    def prepare(self, cache_dir: str = "") -> None:
        """Call ``prepare_data``, as Lightning does: of the data module, and of the module behind it.

        :param cache_dir: Where the processes of this machine see to it that one of them does that; empty: no other
            process could.
        """
        with seeded(self._seed):
            if cache_dir:
                folder = Path(cache_dir) / "lightning"
                prepare_once(self._prepare, folder, self._hyperparams, several=self._several)
            else:
                self._prepare()

    def _prepare(self) -> None:
        self.owner.prepare_data()
        if self.datamodule is not None and overrides(self._module_class, "prepare_data", LightningModule):
            made_module(self._hyperparams, seed=self._seed).prepare_data()  # of its own: of no use behind this

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the equivalent sections of a job: ``dataset``, and ``validation`` and ``test`` if there are any."""
        found = {}
        for split, key in _SECTIONS.items():
            if split in _STEPS and not overrides(self._module_class, _STEPS[split], LightningModule):
                continue
            reader = self._offered_test() if split == "test" else self._reader(split)
            if reader is None:
                continue
            reader.check(self._refusal(split))
            if split != "train" and reader.count == ENDLESS:
                hint = "give its dataset __len__: an evaluation goes through all of it"
                raise self._refusal(split)("a loader without a length", hint)
            section = {"source": SOURCE, **reader.section}
            if split != "train":
                del section["shuffle"]
            found[key] = section
        return found

    def _offered_test(self) -> LoaderReader | None:
        """Return the reader of the test; None if its loader cannot be made: a training needs none."""
        try:
            return self._reader("test")
        except CannotRun:
            raise
        except Exception as error:  # noqa: BLE001 - the code of a data module
            self.test_error = error
            return None

    def batch(self, indices: Sequence[int], split: str, *, seed: int = 0, epoch: int = 0) -> Any:
        """Return the batch that a split's loader would give for these rows.

        :param indices: Numbers of rows, as :mod:`hostcore_lightning.readers` has them.
        :param epoch: Epoch of an order that the loader draws itself.
        :param seed: Of what is drawn for the batch.
        :raises CannotRun: There is no such loader.
        """
        reader = self._reader(split)
        if reader is None:
            raise CannotRun(self._pointer, f"{_name(self.owner)} has no {_METHODS[split]}, which {split} needs")
        if max(indices) >= (rows := reader.count):
            key = f"/{_SECTIONS[split]}/rows"
            raise InvalidData(
                f"{key} is larger than the number of rows that {_name(self.owner)}.{_METHODS[split]} has: {rows}",
                hint=f'write "rows": {rows}',
            )
        return reader.read(indices, epoch=epoch, seed=seed)

    def stream_state(self, epoch: int, number: int) -> dict[str, Any] | None:
        """Return from where the iterable of the training can go on to a batch; None: from its beginning."""
        reader = self._readers.get("train")
        return reader.state_before(epoch, number) if isinstance(reader, StreamReader) else None

    def go_on_from(self, state: dict[str, Any] | None, warn: Callable[[str], None]) -> None:
        """Let the training's iterable go on from where :meth:`stream_state` was."""
        reader = self._reader("train")
        if isinstance(reader, StreamReader):
            reader.go_on_from(state, warn)

    def loader(self, split: str) -> DataLoader[Any] | None:
        """The loader of a split; None when there is none.

        :raises CannotRun: It is one that cannot be read by number, or there is none to train with.
        """
        reader = self._reader(split)
        return None if reader is None else reader.loader

    def _reader(self, split: str) -> LoaderReader | None:
        if split not in self._readers:
            loader = self._found(split)
            found = None
            if loader is not None:
                make = getattr(self.owner, _METHODS[split])
                found = reader_of(loader, make, self._refusal(split), seed=self._seed)
            self._readers[split] = found
        return self._readers[split]

    def _refusal(self, split: str) -> Refuse:
        """Return what makes the error for a loader that cannot be read by number."""
        where = f"{_name(self.owner)}.{_METHODS[split]}"
        return lambda what, hint: CannotRun(self._pointer, f"{where} returns {what}", hint=hint)

    def _found(self, split: str) -> DataLoader[Any] | None:
        method = _METHODS[split]
        base = LightningModule if self.datamodule is None else LightningDataModule
        if not is_overridden(method, self.owner, base):  # on the instance, too
            if split != "train":
                return None
            raise CannotRun(
                self._pointer,
                f"{_name(self.owner)} has no train_dataloader, so there is nothing to train on",
                hint='give it one, or name a LightningDataModule that has: "datamodule": "my_data:Data"',
            )
        self._set_up("test" if split == "test" else "fit")
        with seeded(self._seed):
            loader = getattr(self.owner, method)()
        if isinstance(loader, Sequence) and len(loader) == 1:
            (loader,) = loader
        if loader is None or (isinstance(loader, Sequence) and not loader):
            return None
        _check(loader, self._refusal(split))
        return loader  # type: ignore[no-any-return]

    def _set_up(self, stage: str) -> None:
        if stage not in self._stages:
            self._stages.add(stage)
            with seeded(self._seed):  # anew: one that splits the data in each stage splits it alike
                self.owner.setup(stage)


def brings_data(hyperparams: Hyperparams, *, seed: int) -> bool:
    """Return whether there is a data module, or a module with loaders of its own."""
    if has_datamodule(hyperparams, seed=seed):
        return True
    return overrides(classes_of(hyperparams, seed=seed).module, "train_dataloader", LightningModule)


def _check(loader: Any, refuse: Refuse) -> None:
    """:raises CannotRun: It is no single loader."""
    if isinstance(loader, (Sequence, Mapping, CombinedLoader)):
        raise refuse("several loaders", "return one DataLoader, over a torch.utils.data.ConcatDataset if need be")
    if not hasattr(loader, "__iter__"):
        raise refuse(
            f"a {type(loader).__name__}", "return a torch.utils.data.DataLoader, or another iterable of batches"
        )


def _name(owner: object) -> str:
    return type(owner).__name__
