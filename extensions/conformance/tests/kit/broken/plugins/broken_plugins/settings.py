"""Plugins that are wrong about their settings."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import attrs
from annotated_types import Gt

from broken_plugins import sound
from hostcore_hookspecs import ImportPath


class Untellable(sound.Resolver):
    """Has a setting that no job can give."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """How references are looked up."""

        lookup: Callable[[str], str] | None = None

    def __init__(self, settings: Settings) -> None:
        self._lookup = settings.lookup


class Misplaced(sound.Resolver):
    """Calls its settings what a trainer calls them."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        """Where models are."""

        folder: str = "models"


class Undeclared:
    """A trainer that takes any hyperparameters."""

    def setup(self, ctx: Any) -> None:
        """Nothing is to be done."""

    def configure(self, ctx: Any) -> Any:
        """Look a hyperparameter up, and take another value where it is mistyped."""
        return ctx.hyperparams.get("learning_rate", 0.1)

    def prepare_batch(self, raw_batch: Any) -> Any:
        """Take it as it is."""
        return raw_batch

    def train_step(self) -> Any:
        """Learn nothing."""

    def state_dict(self) -> dict[str, object]:
        """There is no state."""
        return {}

    def load_state_dict(self) -> None:
        """There is no state."""


class Swallowing(sound.Resolver):
    """Collects settings that it does not know."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where models are."""

        folder: str = "models"
        others: Mapping[str, Any] = attrs.field(factory=dict, metadata={"rest": True})

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder


class WrongDefault(sound.Resolver):
    """Has a default that its own bounds refuse."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """How long to wait."""

        timeout_seconds: Annotated[float, Gt(0)] = 0.0

    def __init__(self, settings: Settings) -> None:
        self._timeout_seconds = settings.timeout_seconds


class UnlikeDefault(sound.Resolver):
    """Has a default that is another folder when a job writes it."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where models are."""

        folder: Path = Path("models")

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder


class Appending(sound.Resolver):
    """Writes into its settings when it is made."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which folders to look in."""

        folders: list[str] = attrs.field(factory=list)

    def __init__(self, settings: Settings) -> None:
        settings.folders.append("/models")
        self._folders = settings.folders


class AppendingLater(sound.Reporter):
    """Writes into its settings when it is opened."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which metrics to report."""

        metrics: list[str] = attrs.field(factory=list)

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._metrics = settings.metrics

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        self._metrics.append("train/loss")


class Undocumented(sound.Resolver):
    def __init__(self) -> None:
        pass


class Importing:
    """A callback that measures with a function of the job's, and does not declare it."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """What is measured."""

        measures: tuple[ImportPath[type], ...] = ()

    def __init__(self, settings: Settings) -> None:
        self._measures = settings.measures


class Starting(sound.Reporter):
    """Starts a program of the job's, and does not declare it."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Whom it notifies."""

        notify: tuple[str, ...] = ()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._notify = settings.notify

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        if self._notify:
            subprocess.run(self._notify, check=False)
