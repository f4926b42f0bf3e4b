"""The module and the data that a package gives to a Trainer of its own, for packages that hide it behind ``fit``."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import lightning.pytorch as pl


class Caught(BaseException):
    """``Trainer.fit`` was called; no Exception, which some packages handle."""

    def __init__(self, module: pl.LightningModule, data: Any) -> None:
        super().__init__()
        self.module, self.data = module, data


class Given(pl.LightningDataModule):
    """Loaders that ``fit`` was given."""

    def __init__(self, loader: Any) -> None:
        super().__init__()
        self._loader = loader

    def train_dataloader(self) -> Any:
        return self._loader


def caught(train: Callable[[], Any]) -> Caught:
    """Call what trains; return what it gives to ``fit``.

    :raises RuntimeError: It came back without a call of ``fit``.
    """

    def fit(
        _: pl.Trainer, model: Any, train_dataloaders: Any = None, *__: Any, datamodule: Any = None, **___: Any
    ) -> None:
        if isinstance(train_dataloaders, pl.LightningDataModule):
            datamodule = train_dataloaders
        raise Caught(model, Given(train_dataloaders) if datamodule is None else datamodule)

    with mock.patch.object(pl.Trainer, "fit", fit):
        try:
            train()
        except Caught as found:
            return found
    raise RuntimeError("Trainer.fit was not called")
