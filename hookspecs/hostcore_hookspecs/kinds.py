"""The eight kinds of plugins: how each is registered, where it runs, and which hooks are its contract."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Final, Literal

import attrs

from hostcore_hookspecs import (
    data_source,
    launcher,
    lifecycle,
    policy,
    reporter,
    resolver,
    trainer,
    uploader,
)
from hostcore_hookspecs.markers import PROJECT_NAME

Room = Literal["worker", "supervisor"]


def _hook_names(specification: ModuleType) -> tuple[str, ...]:
    marker = f"{PROJECT_NAME}_spec"
    return tuple(name for name, value in vars(specification).items() if hasattr(value, marker))


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of plugin."""

    name: str
    #: The entry-point group.
    group: str
    #: The process it runs in.
    room: Room
    #: The module whose functions are its hook specifications.
    specification: ModuleType
    #: Hooks that a component of this kind must have.
    required: tuple[str, ...] = ()
    #: Methods that the host calls on the component itself, without going through hooks.
    own_methods: tuple[str, ...] = ()
    #: The name of the attrs class that describes its settings.
    settings_class: str = "Settings"

    @property
    def hooks(self) -> tuple[str, ...]:
        """The names of all its hooks, in the order of the specification."""
        return _hook_names(self.specification)

    @property
    def label(self) -> str:
        """The kind in a sentence: ``data source``."""
        return self.name.replace("_", " ")

    def arguments(self, hook: str) -> tuple[str, ...]:
        """The documented arguments of a hook, in order."""
        return tuple(inspect.signature(getattr(self.specification, hook)).parameters)


_ALL = (
    Kind(
        name="trainer",
        group="hostcore.trainers",
        room="worker",
        specification=trainer,
        required=trainer.REQUIRED,
        settings_class="Hyperparams",
    ),
    Kind(
        name="data_source",
        group="hostcore.data_sources",
        room="worker",
        specification=data_source,
        required=data_source.REQUIRED,
    ),
    Kind(
        name="callback",
        group="hostcore.callbacks",
        room="worker",
        specification=lifecycle,
        own_methods=("callback_state", "load_callback_state"),
    ),
    Kind(
        name="reporter",
        group="hostcore.reporters",
        room="supervisor",
        specification=reporter,
        required=reporter.REQUIRED,
    ),
    Kind(
        name="uploader",
        group="hostcore.uploaders",
        room="supervisor",
        specification=uploader,
        required=uploader.REQUIRED,
    ),
    Kind(
        name="launcher",
        group="hostcore.launchers",
        room="supervisor",
        specification=launcher,
        required=launcher.REQUIRED,
    ),
    Kind(
        name="resolver",
        group="hostcore.resolvers",
        room="supervisor",
        specification=resolver,
        required=resolver.REQUIRED,
    ),
    Kind(
        name="policy",
        group="hostcore.policies",
        room="supervisor",
        specification=policy,
        required=policy.REQUIRED,
    ),
)

#: The kinds by name, in the order of the documentation.
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})
