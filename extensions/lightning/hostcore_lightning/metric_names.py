"""The names by which the host records what a module logs; two that would become one are an error."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hostcore_lightning.settings import CannotRun

#: What the recorded names of metrics begin with.
_PREFIXES: Final = {"train": "train", "validation": "val", "test": "test"}
#: What a module may call the loss; recorded as ``train/loss``, as the host has it of a step by itself.
_LOSS: Final = ("loss", "train_loss", "train/loss")


def of_training(logged: Mapping[str, Any], *, apart_from: Iterable[str] = ()) -> dict[str, Any]:
    """Logged values, by what ``train_step`` reports: ``train_acc`` is ``train/acc``, ``train_loss`` is ``loss``.

    :param apart_from: Names that are taken already, as this function returns them.
    :raises CannotRun: Two of the names are recorded as one.
    """
    return _named(logged, "train", _of_training, taken=apart_from)


def of_epoch(logged: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a whole epoch: the loss among them is another metric than that of the step which ends the epoch."""
    return {f"{name}_epoch" if name in _LOSS else name: value for name, value in logged.items()}


def of_evaluation(logged: Mapping[str, Any], split: str) -> dict[str, Any]:
    """Logged values, by what ``evaluation_metrics`` reports: ``val_loss`` is ``loss``, recorded as ``val/loss``.

    :raises CannotRun: Two of the names are recorded as one.
    """
    return _named(logged, split, lambda name: _without_prefix(name, split))


def recorded_by_guess(name: str) -> str:
    """Return how a metric that a callback monitors is recorded; one without a prefix is taken for a validation's."""
    split = next((split for split, prefix in _PREFIXES.items() if name.startswith(prefix)), "validation")
    if split == "train":
        return "train/loss" if name in _LOSS else _of_training(name)
    return _recorded(_without_prefix(name, split), split)


def _named(logged: Mapping[str, Any], split: str, name_of: Any, *, taken: Iterable[str] = ()) -> dict[str, Any]:
    values: dict[str, Any] = {}
    logged_as = {_recorded(name, split): name for name in taken}
    for name, value in logged.items():
        reported = name_of(name)
        recorded = _recorded(reported, split)
        if recorded in logged_as:
            raise CannotRun(
                "/module",
                f"the module logs {logged_as[recorded]!r} and {name!r}, and both are recorded as {recorded!r}",
                hint="give one of them another name: a metric is recorded once",
            )
        logged_as[recorded] = name
        values[reported] = value
    return values


def _recorded(reported: str, split: str) -> str:
    return reported if "/" in reported else f"{_PREFIXES[split]}/{reported}"


def _of_training(name: str) -> str:
    plain = "loss" if name in _LOSS else _without_prefix(name, "train")
    return plain if plain == "loss" or "/" in plain else f"train/{plain}"


def _without_prefix(name: str, split: str) -> str:
    return name.removeprefix(f"{_PREFIXES[split]}_") or name
