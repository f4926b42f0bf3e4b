"""That a plugin is registered by its distribution as it should be, and can be imported and constructed."""

from typing import Any, Final

from hostcore.errors import all_errors
from hostcore.job.names import canonical
from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import CONTRACT, contract_requirements
from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.declared import required_keys, settings_class_of
from hostcore_conformance.errors import ConformanceError, NoExample
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_hookspecs.errors import HostcoreError

_LOWER: Final = (">=", ">", "~=", "==", "===")


def _is_of_a_distribution(subject: Subject) -> str | None:
    return None if subject.ref.dist else "it is given as an import path, and belongs to no distribution"


@check("plugin.registered", capability=_is_of_a_distribution)
def registered(subject: Subject) -> None:
    """Every entry point of the distribution is one that the host understands.

    Looks at all of the distribution's entry points in groups that begin with `hostcore.`: the group must exist, the
    name must consist of a-z, 0-9, '.', '_' and '-' and start with a letter or a digit, the value must be of the form
    module:Class. One that is wrong is left out by the host, and shown as broken by `hostcore plugins`; the user finds
    that the plugin does not exist. Usual causes: hostcore.trainer for hostcore.trainers, My_Trainer for my-trainer, a
    file path for a module.
    """
    broken = [one for one in discover().broken if canonical(one.distribution) == canonical(subject.ref.dist or "")]
    if broken:
        raise ConformanceError(
            expected="entry points that the host understands",
            got="; ".join(one.error for one in broken),
            fix=f"Correct [project.entry-points] in the pyproject.toml of {subject.ref.dist}, and install it again.",
        )


@check("plugin.name_unique", capability=_is_of_a_distribution)
def name_unique(subject: Subject) -> None:
    """No other plugin of its kind that is installed here has its name.

    Two plugins of one name are an error for every job that uses it: nothing shadows silently, and users must write
    distribution/name. The plugins that ship with hostcore are always there, so a name of theirs (parquet, terminal,
    fsspec) is never free. A name with the plugin's purpose, such as acme-webhook, stays unique.
    """
    shared = discover().conflicts.get((subject.kind.name, subject.name), ())
    others = [f"{ref.dist} {ref.version} ({ref.value})" for ref in shared if ref != subject.ref]
    if others:
        raise ConformanceError(
            expected=f"that no other {subject.kind.label} here is called {subject.name!r}",
            got=f"it is also registered by {', '.join(others)}",
            fix=f"Choose a name with the distribution's own in it: {canonical(subject.ref.dist or '')}.",
        )


@check("plugin.contract_required", capability=_is_of_a_distribution)
def contract_required(subject: Subject) -> None:
    """The distribution requires hostcore-hookspecs, from the version on that it was made for.

    Without it, pip installs the plugin beside any contract, and the first sign of a misfit is an error in the middle of
    a run; with it, pip refuses or upgrades. A requirement without a lower bound (hostcore-hookspecs, or
    hostcore-hookspecs<2) does not state what the plugin needs. The host itself (hostcore) need not be required.
    """
    found = _requirements(subject)
    if not any(clause.operator in _LOWER for one in found for clause in one.specifier):
        raise ConformanceError(
            expected=f"a requirement on {CONTRACT} with a lower bound",
            got=f"{', '.join(map(str, found)) or 'none'} in the metadata of {subject.ref.dist}",
            fix=f'Write dependencies = ["{_recommended()}"] in pyproject.toml, and install it again.',
        )


@check(
    "plugin.contract_range", level="should", requires=("plugin.contract_required",), capability=_is_of_a_distribution
)
def contract_range(subject: Subject) -> None:
    """The required contract ends before the next major version, and not sooner.

    A new major version may take away what the plugin uses, so a requirement that is open above (>=1) promises too much.
    Within a major version the contract only grows, so one that ends sooner (==1.0.0, <1.1) keeps users from upgrading
    the host for no reason, and from installing two plugins whose pins differ.
    """
    found = _requirements(subject)
    major, minor = (int(part) for part in API_VERSION.split(".")[:2])
    newer, next_major = f"{major}.{minor + 1}.0", f"{major + 1}.0.0"
    admits = {version: all(one.specifier.contains(version) for one in found) for version in (newer, next_major)}
    if admits[next_major] or not admits[newer]:
        raise ConformanceError(
            expected=f"a range that admits {newer} and not {next_major}",
            got=f"{', '.join(map(str, found))}, which {'admits both' if admits[newer] else f'does not admit {newer}'}",
            fix=f'Write dependencies = ["{_recommended()}"] in pyproject.toml.',
        )


def _requirements(subject: Subject) -> tuple[Any, ...]:
    return contract_requirements(subject.ref.dist or "")


def _recommended() -> str:
    major = int(API_VERSION.partition(".")[0])
    return f"{CONTRACT}>={API_VERSION.removesuffix('.0')},<{major + 1}"


@check("plugin.resolves")
def resolves(subject: Subject) -> None:
    """The entry point leads to a class.

    The module that the entry point names is imported, and the name after the colon is looked up in it. It must be a
    class: the host makes an instance for every use, so that two uses share nothing. Before the import, the version of
    the contract that the distribution requires is compared with the one that is installed.
    """
    _ = subject.owner


@check("plugin.constructs", requires=("plugin.resolves", "plugin.methods", "plugin.signatures", "plugin.near_misses"))
def constructs(subject: Subject) -> None:
    """The class is constructed with the settings of its example.

    This is what the host does with every plugin that a job names: settings are structured strictly, and the constructor
    gets `settings=` (a trainer nothing: it finds them in ctx.hyperparams). A plugin that needs settings to be
    constructed at all gives them as its example; without one this check is skipped, and all that build on it.
    """
    try:
        subject.component()
    except HostcoreError as error:
        refusals = all_errors(error)
        if subject.settings or subject.has_job or any(isinstance(one, PluginError) for one in refusals):
            raise
        option = "--job" if subject.kind.name == "trainer" else "--settings"
        raise NoExample(
            f"it cannot be constructed without settings ({'; '.join(one.message for one in refusals)}): give an example"
            f" in [tool.hostcore.conformance.{subject.name}] of pyproject.toml, or with {option}"
        ) from error


@check("plugin.constructs_minimal", requires=("plugin.constructs",))
def constructs_minimal(subject: Subject) -> None:
    """The class is constructed with its required settings alone.

    Of the example only those settings are kept that have no default, and the plugin is constructed with these. Every
    setting with a default may be left out by a job, so the constructor must do without: one that reads an optional
    setting as if it were always given fails for the first user who does not. A plugin that needs one of several
    settings raises InvalidSettings, which passes: users see what to write.
    """
    declared = settings_class_of(subject)
    required = required_keys(declared) if declared is not None else ()
    minimal = {key: value for key, value in subject.settings.items() if key in required}
    try:
        subject.component(minimal)
    except PluginError as error:
        raise ConformanceError(
            expected=f"that {_listed(minimal)} are enough to construct it",
            got=error.message,
            fix="Give the setting a usable default, take its default away, or raise InvalidSettings with its pointer.",
        ) from error
    except HostcoreError:
        return  # the user's mistake, from the plugin or its settings class


@check("plugin.instances", requires=("plugin.constructs",))
def instances(subject: Subject) -> None:
    """Every use gets an instance of its own, which shares nothing that changes with others.

    The plugin is constructed twice. The instances must be two objects, and no list, dictionary or set that the
    constructor was given as the default of an argument, or that it adds to on the class, may be in both. Otherwise two
    uses in one job (two webhooks, training and validation data) write into each other. The usual causes are a mutable
    default (`def __init__(self, settings, seen=[])`), a registry on the class that __init__ appends to, and a
    singleton.
    """
    first = subject.component().instance
    owner = type(first)
    before = {name: len(value) for name, value in vars(owner).items() if isinstance(value, list | dict | set)}
    second = subject.component().instance
    fix = "Make it in __init__: self.seen = []; and keep no registry of instances."
    if first is second:
        raise ConformanceError(
            expected="two instances, if it is constructed twice",
            got=f"one and the same {owner.__qualname__}",
            fix="Remove the singleton (__new__, a metaclass, a cached factory): the host decides how many there are.",
        )
    grown = [name for name, size in before.items() if len(getattr(owner, name)) != size]
    if grown:
        raise ConformanceError(
            expected="that constructing it leaves the class as it is",
            got=f"{owner.__qualname__}.{grown[0]} has {len(getattr(owner, grown[0]))} items in place of"
            f" {before[grown[0]]}",
            fix=fix,
        )
    for name in _mutable_defaults_in(first) & _mutable_defaults_in(second):
        raise ConformanceError(
            expected="that two instances share no list, dictionary or set",
            got=f"both have the default of an argument of {owner.__qualname__}.__init__ as their {name}",
            fix=fix,
        )


def _mutable_defaults_in(instance: Any) -> set[str]:
    """The attributes of an instance that are mutable defaults of its constructor's arguments."""
    function: Any = getattr(type(instance), "__init__", None)
    by_position: Any = getattr(function, "__defaults__", None) or ()
    by_keyword: Any = getattr(function, "__kwdefaults__", None) or {}
    defaults = [*by_position, *by_keyword.values()]
    mutable = [value for value in defaults if isinstance(value, list | dict | set)]
    return {name for name, value in getattr(instance, "__dict__", {}).items() if any(value is one for one in mutable)}


def _listed(settings: dict[str, Any]) -> str:
    return f"the settings {', '.join(settings)}" if settings else "no settings"
