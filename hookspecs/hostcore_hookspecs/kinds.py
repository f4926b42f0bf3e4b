"""The eight kinds of plugins: how each is registered, where it runs, and which hooks are its contract."""

import importlib
import inspect
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, Literal

import attrs

#: The entry-point group of commands: name -> a ``click.Command``, which ``hostcore NAME`` calls. Its module imports
#: what the command needs when it runs, since ``hostcore --help`` imports the modules of all commands.
COMMANDS_GROUP: Final = "hostcore.commands"

#: The entry-point group of run clients: URL scheme -> a class, made with the URL that ``--server SCHEME://…`` gives.
RUN_CLIENTS_GROUP: Final = "hostcore.run_clients"

#: The entry-point group of what builds environments for workers: name -> a subclass of
#: ``hostcore.supervisor.environment.EnvironmentBuilder``, made without arguments.
ENVIRONMENTS_GROUP: Final = "hostcore.environments"

#: The entry-point group of what brings the ranks of an engine together: any name -> an instance of
#: ``hostcore.supervisor.engine_ranks.EngineRanks``.
RANKS_GROUP: Final = "hostcore.ranks"

#: The entry-point group of options of the commands that take a job: name -> an instance of
#: ``hostcore.cli.job_options.AddedOptions``. Its module is imported when an option is unknown, and for the help.
JOB_OPTIONS_GROUP: Final = "hostcore.job_options"
#: The entry-point group of functions for Python: name -> a function, which ``hostcore.NAME`` is.
FUNCTIONS_GROUP: Final = "hostcore.functions"

#: The entry-point group of plugins that run code or programs which a job names in its settings: any name -> the value
#: under which the same distribution registers the plugin. A service refuses their jobs, unless its operator allows it.
#: It is read without an import, so that nothing of a plugin runs before it is allowed.
RUNS_CODE_GROUP: Final = "hostcore.runs_code"

#: The entry-point group of the job service's sections: name -> a class with the interface of
#: ``hostcore_service.sections.ServiceSection``.
SERVICE_SECTIONS_GROUP: Final = "hostcore.service_sections"

Room = Literal["worker", "supervisor"]


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of plugin."""

    name: str
    #: The entry-point group.
    group: str
    #: The process it runs in.
    room: Room
    #: The key of a job that names plugins of the kind, and whether it holds a list of uses.
    job_key: str
    is_listed: bool = False
    #: The module of ``hostcore_hookspecs`` whose functions are its hook specifications; called as the kind is, mostly.
    module: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    #: Methods that the host calls on the component itself, without going through hooks.
    own_methods: tuple[str, ...] = ()
    #: The name of the attrs class that describes its settings.
    settings_class: str = "Settings"

    @property
    def specification(self) -> ModuleType:
        """The module with its hook specifications. Imported when it is first asked for: listing plugins needs none."""
        return importlib.import_module(f"hostcore_hookspecs.{self.module}")

    @property
    def required(self) -> tuple[str, ...]:
        """Hooks that a component of this kind must have."""
        required: tuple[str, ...] = self.specification.REQUIRED
        return required

    @property
    def defaulted(self) -> tuple[tuple[str, ...], ...]:
        """Hooks that a component may lack, since the specification is a default; it has all of a group, or none."""
        return getattr(self.specification, "DEFAULTS", ())

    @property
    def hooks(self) -> tuple[str, ...]:
        """The names of all its hooks, in the order of the specification."""
        from hostcore_hookspecs.markers import PROJECT_NAME

        mark = f"{PROJECT_NAME}_spec"
        return tuple(name for name, value in vars(self.specification).items() if hasattr(value, mark))

    @property
    def label(self) -> str:
        """The kind in a sentence: ``data source``."""
        return self.name.replace("_", " ")

    def arguments(self, hook: str) -> tuple[str, ...]:
        """The documented arguments of a hook, in order."""
        return tuple(inspect.signature(getattr(self.specification, hook)).parameters)

    def defaults(self, hook: str) -> Mapping[str, Any]:
        """The defaults of those arguments that later versions added: a host made for an earlier one passes none."""
        parameters = inspect.signature(getattr(self.specification, hook)).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


_ALL = (
    Kind(name="trainer", group="hostcore.trainers", room="worker", job_key="trainer", settings_class="Hyperparams"),
    Kind(name="data_source", group="hostcore.data_sources", room="worker", job_key="dataset.source"),
    Kind(
        name="callback",
        group="hostcore.callbacks",
        room="worker",
        job_key="callbacks",
        is_listed=True,
        module="lifecycle",
        own_methods=("callback_state", "load_callback_state"),
    ),
    Kind(name="reporter", group="hostcore.reporters", room="supervisor", job_key="reporters", is_listed=True),
    Kind(name="uploader", group="hostcore.uploaders", room="supervisor", job_key="uploaders", is_listed=True),
    Kind(name="launcher", group="hostcore.launchers", room="supervisor", job_key="launcher"),
    Kind(name="resolver", group="hostcore.resolvers", room="supervisor", job_key="resolvers", is_listed=True),
    Kind(name="policy", group="hostcore.policies", room="supervisor", job_key="policies", is_listed=True),
)

#: The kinds by name, in the order of the documentation.
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})
