"""The loaders of a data module or a module, read by index: the host owns order, batches, ranks and the place in them.

A ``DataLoader`` only describes reading (dataset, batch size, whether it shuffles, workers, ``collate_fn``). None is
ever iterated. What a data module draws in its constructor, in ``setup`` and where it makes its loaders follows from the
job's seed alone: each process that reads rows makes one of its own, and all must split the data alike.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from hostcore_hookspecs import InvalidData
from hostcore_lightning.generators import generators_in, seed_each
from hostcore_lightning.making import class_of, made, overrides
from hostcore_lightning.preparing import prepare_once
from hostcore_lightning.settings import CannotRun, Hyperparams, TrainerInternal

SOURCE: Final = "hostcore-lightning/indices"
_METHODS: Final = {"train": "train_dataloader", "validation": "val_dataloader", "test": "test_dataloader"}
_SECTIONS: Final = {"train": "dataset", "validation": "validation", "test": "test"}
#: The module's method that a split is of no use without.
_STEPS: Final = {"validation": "validation_step", "test": "test_step"}


class DataView:
    """Stand-in for ``self.trainer`` of a data module before there is one, and in processes where there is none.

    :param pointer: Where the hyperparameters name it.
    """

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
        self._pointer = "/datamodule" if hyperparams.datamodule else "/module"
        self._several = world_size > 1
        with seeded(seed):
            #: None: the module has the loaders.
            self.datamodule = datamodule_of(hyperparams)
            #: What has the methods. The module is one of its own, not that which is trained.
            self.owner: Any = self.datamodule or made(
                hyperparams.module, hyperparams.init, LightningModule, pointer="/module"
            )
        self.owner.trainer = DataView(self._pointer, rank=rank, world_size=world_size)
        self._module_class = module_class(hyperparams)
        self._stages: set[str] = set()
        self._loaders: dict[str, DataLoader[Any] | None] = {}
        #: Of loaders with a sampler of their own: the epoch, and the rows that it has in it. By split.
        self._drawn: dict[str, tuple[int, npt.NDArray[np.int64]]] = {}
        #: Random generators that datasets and ``collate_fn`` hold, by split.
        self._generators: dict[str, list[Any]] = {}

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
            given = self._hyperparams  # a module of its own, as it is of no use behind this
            made(given.module, given.init, LightningModule, pointer="/module").prepare_data()

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the equivalent sections of a job: ``dataset``, and ``validation`` and ``test`` if there are any."""
        found = {}
        for split, key in _SECTIONS.items():
            loader = self.loader(split)
            if loader is None or (
                split in _STEPS and not overrides(self._module_class, _STEPS[split], LightningModule)
            ):
                continue
            section = {"source": SOURCE, "rows": self._rows(loader), "batch_size": loader.batch_size}
            if _has_own_order(loader):
                self._order_is_repeatable(loader, split)
            if split == "train":
                section["shuffle"] = _shuffles(loader)
            found[key] = section | ({"workers": loader.num_workers} if loader.num_workers else {})
        return found

    def batch(self, indices: Sequence[int], split: str, *, seed: int = 0, epoch: int = 0) -> Any:
        """Return the batch that a split's loader would give for these rows.

        :param indices: Of rows; for a loader with a sampler of its own, places in the order that it draws.
        :param epoch: Epoch of such an order.
        :param seed: Of what is drawn for it: from the global generators, and those that the dataset holds.
        :raises CannotRun: There is no such loader.
        """
        loader = self.loader(split)
        if loader is None:
            raise CannotRun(self._pointer, f"{_name(self.owner)} has no {_METHODS[split]}, which {split} needs")
        dataset: Any = loader.dataset
        if max(indices) >= (rows := self._rows(loader)):
            key = f"/{_SECTIONS[split]}/rows"
            raise InvalidData(
                f"{key} is larger than the number of rows that {_name(self.owner)}.{_METHODS[split]} has: {rows}",
                hint=f'write "rows": {rows}',
            )
        if _has_own_order(loader):
            if self._drawn.get(split, (None,))[0] != epoch:
                self._drawn[split] = epoch, _drawn(loader, self._seed, epoch)
            indices = self._drawn[split][1][indices].tolist()
        known = self._generators.get(split)
        generators = generators_in(dataset, loader.collate_fn) if known is None else known
        batch = _read(loader, indices, generators, seed)
        if known is None:  # once more: some datasets make theirs when the first row is read
            self._generators[split] = generators_in(dataset, loader.collate_fn)
            if len(self._generators[split]) > len(generators):
                batch = _read(loader, indices, self._generators[split], seed)
        return batch

    def loader(self, split: str) -> DataLoader[Any] | None:
        """The loader of a split; None when there is none.

        :raises CannotRun: It is one that cannot be read by index, or there is none to train with.
        """
        if split not in self._loaders:
            self._loaders[split] = self._found(split)
        return self._loaders[split]

    def _found(self, split: str) -> DataLoader[Any] | None:
        method = _METHODS[split]
        base = LightningModule if self.datamodule is None else LightningDataModule
        if not overrides(type(self.owner), method, base):
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
        where = f"{_name(self.owner)}.{method}"
        if isinstance(loader, Sequence) and len(loader) == 1:
            (loader,) = loader
        if loader is None or (isinstance(loader, Sequence) and not loader):
            return None
        _check(loader, where, self._pointer)
        return loader  # type: ignore[no-any-return]

    def _set_up(self, stage: str) -> None:
        if stage not in self._stages:
            self._stages.add(stage)
            with seeded(self._seed):  # anew: one that splits the data in each stage splits it alike
                self.owner.setup(stage)

    @staticmethod
    def _rows(loader: DataLoader[Any]) -> int:
        """Return the number of rows in an epoch: of the dataset, or of the loader's own sampler."""
        return len(loader.sampler) if _has_own_order(loader) else len(loader.dataset)  # type: ignore[arg-type]

    def _order_is_repeatable(self, loader: DataLoader[Any], split: str) -> None:
        """:raises CannotRun: A sampler does not give the same rows twice, or none that the dataset has."""
        kind, where = type(loader.sampler).__name__, f"{_name(self.owner)}.{_METHODS[split]}"
        one, other = (_drawn(loader, self._seed, 0) for _ in range(2))
        size = len(loader.dataset)  # type: ignore[arg-type]
        if len(one) != self._rows(loader) or len(one) == 0 or not (one.min() >= 0 and one.max() < size):
            raise CannotRun(
                self._pointer,
                f"{where} returns a loader whose {kind} gives {len(one)} rows, and has a length of "
                f"{self._rows(loader)} of the {size} of the dataset",
                hint="its __len__ must be the number of rows of an epoch",
            )
        if not np.array_equal(one, other):
            raise CannotRun(
                self._pointer,
                f"{where} returns a loader whose {kind} gives other rows each time, whatever the seed: no run could "
                "go on exactly",
                hint="let it draw from the global generators, or from a torch.Generator in its attribute `generator`",
            )


def brings_data(hyperparams: Hyperparams) -> bool:
    """Return whether there is a data module, or a module with loaders of its own."""
    return hyperparams.datamodule is not None or overrides(
        module_class(hyperparams), "train_dataloader", LightningModule
    )


def module_class(hyperparams: Hyperparams) -> type:
    """Return the class of the module that a job names."""
    return class_of(hyperparams.module, hyperparams.init, LightningModule, pointer="/module")


def datamodule_of(hyperparams: Hyperparams) -> LightningDataModule | None:
    """The data module that a job names, made anew; None if it names none."""
    if hyperparams.datamodule is None:
        return None
    found: LightningDataModule = made(
        hyperparams.datamodule, hyperparams.datamodule_init, LightningDataModule, pointer="/datamodule"
    )
    return found


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While entered, the global generators of Python, NumPy and torch begin from a seed; behind it, as before."""
    with random_states_kept():
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Behind it, the global generators of Python, NumPy and torch's CPU are as they were before."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _read(loader: DataLoader[Any], indices: Sequence[int], generators: Sequence[Any], seed: int) -> Any:
    """Read rows and put them together, with all generators beginning from a seed."""
    dataset: Any = loader.dataset
    read = getattr(dataset, "__getitems__", None)
    with seeded(seed):
        seed_each(generators, seed)
        return loader.collate_fn(read(indices) if read is not None else [dataset[one] for one in indices])


def _shuffles(loader: DataLoader[Any]) -> bool:
    sampler = loader.sampler
    return not _has_own_order(loader) and (
        isinstance(sampler, RandomSampler) or (isinstance(sampler, DistributedSampler) and sampler.shuffle)
    )


def _has_own_order(loader: DataLoader[Any]) -> bool:
    """Return whether a sampler selects the rows of an epoch: not just all of them, in order or shuffled."""
    sampler = loader.sampler
    return not (
        type(sampler) in (SequentialSampler, DistributedSampler)
        or (
            type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
        )
    )


def _drawn(loader: DataLoader[Any], seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The rows that a sampler gives in an epoch, which follow from the job's seed and the epoch alone."""
    sampler: Any = loader.sampler
    own = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    with seeded(own):
        if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
            generator.manual_seed(own)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        return np.fromiter(sampler, np.int64)


def _check(loader: Any, where: str, pointer: str) -> None:
    """:raises CannotRun: A loader cannot be read by index."""

    def refuse(what: str, hint: str) -> CannotRun:
        return CannotRun(pointer, f"{where} returns {what}", hint=hint)

    if isinstance(loader, (Sequence, Mapping)):
        raise refuse(
            f"{len(loader)} loaders", "return one DataLoader, over a torch.utils.data.ConcatDataset if need be"
        )
    if not isinstance(loader, DataLoader):
        raise refuse(f"a {type(loader).__name__}", "return a torch.utils.data.DataLoader: the host reads its dataset")
    if isinstance(loader.dataset, IterableDataset):
        raise refuse(
            f"a loader of an IterableDataset ({type(loader.dataset).__name__}), which has no rows to ask for by index",
            "give it __getitem__ and __len__, or write the rows to Parquet and name them in the job's dataset",
        )
    if type(loader.batch_sampler) is not BatchSampler:
        kind = "no batches (batch_size=None)" if loader.batch_sampler is None else type(loader.batch_sampler).__name__
        raise refuse(
            f"a loader with {kind}", "set batch_size and shuffle, in place of batch_sampler: the host cuts the batches"
        )
    if _has_own_order(loader) and not hasattr(loader.sampler, "__len__"):
        raise refuse(
            f"a loader with a sampler without a length ({type(loader.sampler).__name__})",
            "give it __len__: how many rows an epoch has",
        )


def _name(owner: object) -> str:
    return type(owner).__name__
