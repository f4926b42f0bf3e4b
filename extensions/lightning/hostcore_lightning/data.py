"""The loaders of a data module or a module, read by index: the host owns order, batches, ranks and the place in them.

A ``DataLoader`` says what it would do (dataset, batch size, whether it shuffles, workers, ``collate_fn``). None is ever
iterated.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from filelock import FileLock
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
from hostcore_lightning.making import made, overrides
from hostcore_lightning.settings import CannotRun, Hyperparams

SOURCE: Final = "hostcore-lightning/indices"
_METHODS: Final = {"train": "train_dataloader", "validation": "val_dataloader", "test": "test_dataloader"}
_SECTIONS: Final = {"train": "dataset", "validation": "validation", "test": "test"}
#: The module's method that a split is of no use without.
_STEPS: Final = {"validation": "validation_step", "test": "test_step"}


class Loaders:
    """What a job names as its data: a data module, or the module itself."""

    def __init__(self, hyperparams: Hyperparams) -> None:
        self._pointer = "/datamodule" if hyperparams.datamodule else "/module"
        with random_states_kept():
            #: None: the module has the loaders.
            self.datamodule = datamodule_of(hyperparams)
            #: What has the methods. The module is one of its own: that which is trained is made from the job's seed.
            self.owner: Any = self.datamodule or made(
                hyperparams.module, hyperparams.init, LightningModule, pointer="/module"
            )
        self._module_class = hyperparams.module.load()
        self._stages: set[str] = set()
        self._loaders: dict[str, DataLoader[Any] | None] = {}

    def prepare(self, lock: Path | None = None) -> None:
        """Call ``prepare_data``.

        :param lock: A file that lets the processes of this machine do that one after the other.
        """
        if lock is None:
            self.owner.prepare_data()
            return
        lock.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
            self.owner.prepare_data()

    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections of a job that say the same: ``dataset``, and ``validation`` and ``test`` if there are any."""
        found = {}
        for split, key in _SECTIONS.items():
            loader = self.loader(split)
            if loader is None or (
                split in _STEPS and not overrides(self._module_class, _STEPS[split], LightningModule)
            ):
                continue
            section = {"source": SOURCE, "rows": len(loader.dataset), "batch_size": loader.batch_size}  # type: ignore[arg-type]
            if split == "train":
                section["shuffle"] = _shuffles(loader)
            found[key] = section | ({"workers": loader.num_workers} if loader.num_workers else {})
        return found

    def batch(self, indices: Sequence[int], split: str) -> Any:
        """What the loader of a split would give for these rows.

        :raises CannotRun: There is no such loader.
        """
        loader = self.loader(split)
        if loader is None:
            raise CannotRun(self._pointer, f"{_name(self.owner)} has no {_METHODS[split]}, which {split} needs")
        dataset: Any = loader.dataset
        if max(indices) >= len(dataset):
            key = f"/{_SECTIONS[split]}/rows"
            raise InvalidData(
                f"{key} says that there are more rows than {_name(self.owner)}.{_METHODS[split]} has: {len(dataset)}",
                hint=f'write "rows": {len(dataset)}',
            )
        rows = dataset.__getitems__(indices) if hasattr(dataset, "__getitems__") else [dataset[one] for one in indices]
        return loader.collate_fn(rows)

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
        with random_states_kept():
            self._set_up("test" if split == "test" else "fit")
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
            self.owner.setup(stage)


def brings_data(hyperparams: Hyperparams) -> bool:
    """Whether there is a data module, or a module with loaders of its own."""
    return hyperparams.datamodule is not None or overrides(
        hyperparams.module.load(), "train_dataloader", LightningModule
    )


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


def _shuffles(loader: DataLoader[Any]) -> bool:
    sampler = loader.sampler
    return isinstance(sampler, RandomSampler) or (isinstance(sampler, DistributedSampler) and sampler.shuffle)


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
            f"a loader with {kind}", "say batch_size and shuffle, in place of batch_sampler: the host cuts the batches"
        )
    sampler = loader.sampler
    plain = type(sampler) in (SequentialSampler, DistributedSampler) or (
        type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )
    if not plain:
        raise refuse(
            f"a loader with a sampler of its own ({type(sampler).__name__})",
            "say shuffle=True or False, and choose rows by torch.utils.data.Subset: the host owns the order",
        )


def _name(owner: object) -> str:
    return type(owner).__name__
