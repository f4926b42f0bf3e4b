"""Loading: a selected plugin is imported, checked, and constructed with its settings."""

import inspect
import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.names import canonical_plugin
from hostcore.job.pointers import escaped
from hostcore.plugins.errors import PluginError, named
from hostcore.plugins.implementations import implementations
from hostcore.plugins.importing import check_object, guarded, import_plugin
from hostcore.plugins.resolve import Selected
from hostcore.plugins.signatures import Implementation
from hostcore_hookspecs.errors import HostcoreError, InvalidSettings
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.setting_types import ImportPath
from hostcore_hookspecs.step import Capabilities

if TYPE_CHECKING:
    from hostcore.job.structure import CheckObject

#: Folders of the run directory that are the host's, whatever a plugin is called.
_HOST_FOLDERS = frozenset(
    {"attempts", "checkpoints", "config", "control", "cursors", "logs", "plots", "samples", "spool"}
)
PRECISIONS = ("fp32", "bf16", "fp16")


@attrs.frozen(kw_only=True, eq=False)
class Component:
    """One instance of a plugin's class, for one use by the job."""

    ref: PluginRef
    kind: Kind
    instance: Any
    #: An instance of the class's ``Settings`` (a trainer: ``Hyperparams``), or the plain mapping if it declares none.
    settings: Any
    #: What a trainer declares; the defaults for all other kinds.
    capabilities: Capabilities
    #: Names this use: ``trainer:flight_delay``, ``callback:0:early-stopping``.
    use: str
    #: The hooks that it implements or wraps.
    implementations: tuple[Implementation, ...]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Return the names of the hooks that it implements, without those that it only wraps."""
        return tuple(found.hook for found in self.implementations if not found.wrapper)


def load_component(
    selected: Selected,
    *,
    job_dir: Path,
    run_dir: Path | None = None,
    check_objects: bool = True,
    import_paths: bool | Collection[str] = True,
) -> Component:
    """Import a plugin and make a component of it.

    :param job_dir: The job file's folder: import paths are looked up there, relative paths in settings start there.
    :param run_dir: The run directory, whose files no setting may name; None: of no run.
    :param check_objects: Whether to import the objects that its settings name.
    :param import_paths: The job's key: whether its plugins may run code that it names, or those that may.
    :raises PluginError: It cannot be imported or constructed; what it raised is the cause and in ``traceback``.
    :raises InvalidSettings: Raised by its constructor; the pointer is one of the job.
    :raises Errors: Several at once: its secrets, its settings, or everything that is wrong with its methods.
    """
    ref, kind = selected.ref, KINDS[selected.ref.kind]
    may_run_code = import_paths if isinstance(import_paths, bool) else qualified(ref) in import_paths
    if ref.dist is None and not may_run_code:
        raise _import_path_refused(f"{ref.value} is an import path", selected.named_at)
    if ref.runs_code and not may_run_code:
        raise _import_path_refused(f"{named(ref)} runs code or programs that a job names", selected.named_at)
    symbol = import_plugin(ref, job_dir=job_dir, pointer=selected.named_at)
    owner = component_class(symbol, ref, pointer=selected.named_at)
    capabilities = declared_capabilities(owner, ref, pointer=selected.named_at)
    objects = _objects(ref, job_dir=job_dir, check_objects=check_objects, import_paths=may_run_code)
    settings = _structured(owner, selected, job_dir=job_dir, check_object=objects)  # with its secrets
    if run_dir is not None:
        _refuse_run_files(settings, selected, run_dir)
    instance = construct(owner, settings, selected) if symbol is owner else symbol
    return Component(
        ref=ref,
        kind=kind,
        instance=instance,
        settings=settings,
        capabilities=capabilities,
        use=selected.use,
        implementations=implementations(owner, ref, instance=instance, pointer=selected.named_at),
    )


def qualified(ref: PluginRef) -> str:
    """Return the name of a plugin with that of its distribution, both canonical: no other plugin of its kind has it."""
    return canonical_plugin(f"{ref.dist}/{ref.name}") if ref.dist else ref.name


def component_class(symbol: object, ref: PluginRef, *, pointer: str | None = None) -> type:
    """Return the class of the object that a plugin names: a class, or, for an import path, an instance.

    :raises PluginError: ``plugin.not_a_class``.
    """
    if inspect.isclass(symbol):
        return symbol
    if isinstance(symbol, ModuleType):
        found, hint = "a module", "Name the class in it: module:Class."
    elif inspect.isroutine(symbol):
        found, hint = "a function", f"Name a class; a {KINDS[ref.kind].label} is a class with methods."
    elif ref.dist is not None:
        found = f"an instance of {type(symbol).__name__}"
        hint = f"Register the class, so that every use gets an instance of its own: {type(symbol).__name__}."
    else:
        return type(symbol)
    raise PluginError(
        f"{named(ref)} is {found}, not a class",
        code="plugin.not_a_class",
        pointer=pointer,
        hint=hint,
        plugin=ref.provenance,
    )


def settings_class(owner: type, ref: PluginRef, *, pointer: str | None = None) -> type | None:
    """Return the attrs class that describes the settings of a component, nested or assigned; None if it declares none.

    :raises PluginError: ``plugin.settings_class``: there is something of that name, but no attrs class.
    """
    name = KINDS[ref.kind].settings_class
    declared = inspect.getattr_static(owner, name, None)
    if declared is None:
        return None
    if inspect.isclass(declared) and attrs.has(declared):
        return declared
    found = "a class without attrs" if inspect.isclass(declared) else f"a value of type {type(declared).__name__}"
    raise PluginError(
        f"{named(ref)} declares {name}, but it is {found}",
        code="plugin.settings_class",
        pointer=pointer,
        hint="Write @attrs.frozen above it, and its fields as annotations: learning_rate: float = 1e-3."
        if inspect.isclass(declared)
        else f"Assign an attrs class to {name}.",
        plugin=ref.provenance,
    )


def declared_capabilities(owner: type, ref: PluginRef, *, pointer: str | None = None) -> Capabilities:
    """Return the capabilities that a trainer declares; the defaults without a declaration, and for all other kinds.

    :raises PluginError: ``plugin.capabilities``.
    """
    declared = inspect.getattr_static(owner, "CAPABILITIES", None) if ref.kind == "trainer" else None
    if declared is None:
        return Capabilities()
    problem = None
    if not isinstance(declared, Capabilities):
        problem = f"CAPABILITIES is a {type(declared).__name__}, not a Capabilities"
    elif not isinstance(declared.precisions, tuple) or not set(declared.precisions) <= set(PRECISIONS):
        problem = f"CAPABILITIES.precisions is {declared.precisions!r}, not a tuple of {', '.join(PRECISIONS)}"
    else:
        return declared
    raise PluginError(
        f"{named(ref)}: {problem}",
        code="plugin.capabilities",
        pointer=pointer,
        hint='Write CAPABILITIES = Capabilities(precisions=("fp32", "bf16")), imported from hostcore_hookspecs.',
        plugin=ref.provenance,
    )


def _refuse_object(path: ImportPath[Any], form: Any) -> None:  # noqa: ARG001 - as it is called
    raise HostcoreError(
        f"{path} is code of the job's, which a plugin of this kind cannot be given: it runs outside the worker",
        code="settings.class",
        pointer="",
        hint="settings of trainers, data sources and callbacks may be of type ImportPath",
    )


def _import_path_refused(found: str, pointer: str | None) -> HostcoreError:
    return HostcoreError(
        f"{found}, and `import_paths` of the job does not allow it",
        code="job.import_paths",
        pointer=pointer,
        hint="a service decides this for its jobs: use a plugin that is installed, or ask its operator",
    )


def _objects(ref: PluginRef, *, job_dir: Path, check_objects: bool, import_paths: bool) -> "CheckObject":
    """Return the check of an import path in a plugin's settings."""
    from hostcore.job.structure import unchecked

    def refuse(path: ImportPath[Any], _form: Any) -> None:
        raise _import_path_refused(f"{path} is an import path", "")

    if KINDS[ref.kind].room != "worker":
        return _refuse_object
    if not import_paths:
        return refuse
    return partial(check_object, job_dir=job_dir) if check_objects else unchecked


def _structured(owner: type, selected: Selected, *, job_dir: Path, check_object: "CheckObject") -> Any:
    from hostcore.secrets.reference import resolve_secrets, without_marks

    declared = settings_class(owner, selected.ref, pointer=selected.named_at)
    settings = resolve_secrets(selected.settings, selected.pointer)
    if declared is not None:
        from hostcore.job.sections import dataset_keys
        from hostcore.job.structure import structure

        # A mistyped key of a dataset may be one of the host's own.
        elsewhere = dataset_keys() if selected.ref.kind == "data_source" else ()
        return structure(
            declared,
            settings,
            pointer=selected.pointer,
            base_dir=job_dir,
            elsewhere=elsewhere,
            check_object=check_object,
        )
    if selected.settings and selected.ref.kind != "trainer":
        label = KINDS[selected.ref.kind].label
        misnamed = attrs.has(inspect.getattr_static(owner, "Hyperparams", object))
        raise PluginError(
            f"{named(selected.ref)} takes no settings, found: {', '.join(map(repr, selected.settings))}",
            code="plugin.no_settings",
            pointer=selected.pointer,
            hint=f"It declares Hyperparams; the settings class of a {label} is called Settings." if misnamed else None,
            plugin=selected.ref.provenance,
        )
    return without_marks(settings)


def _refuse_run_files(settings: Any, selected: Selected, run_dir: Path) -> None:
    """Refuse settings that name a place in the run directory, other than below the folder with the plugin's name.

    :raises Errors: ``plugin.run_files``, with the pointer of each.
    """
    name = selected.ref.value.rpartition(":")[2] if selected.ref.dist is None else selected.ref.name.rpartition("/")[2]
    run = Path(os.path.realpath(run_dir))
    own = run / (f"plugin-{name}" if name in _HOST_FOLDERS else name)
    errors = []
    for pointer, path in _written(settings, selected.pointer):
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a name that this locale cannot encode, or with a null character: there is no such file
            continue
        if real.is_relative_to(run) and not real.is_relative_to(own):
            errors.append(
                PluginError(
                    f"{named(selected.ref)} may not use the run directory: {path}",
                    code="plugin.run_files",
                    pointer=pointer,
                    hint=f"its files are the run's own; name a place outside of it, or below {own}",
                    plugin=selected.ref.provenance,
                )
            )
    if errors:
        raise Errors(errors)


def _written(value: Any, pointer: str) -> Iterator[tuple[str, Path]]:
    """Yield the paths in settings, with their pointers, but for those of fields that are only read (``reads``)."""
    if isinstance(value, Path):
        yield pointer, value
    elif isinstance(value, str):
        place = value.removeprefix("file://").removeprefix("local://")
        if place.startswith("/") and "\0" not in place:
            yield pointer, Path(place)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            if not field.metadata.get("reads"):
                yield from _written(getattr(value, field.name), f"{pointer}/{field.name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _written(item, f"{pointer}/{escaped(str(key))}")
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _written(item, f"{pointer}/{position}")


def construct(owner: type, settings: Any, selected: Selected) -> Any:
    """Make an instance, with ``settings=`` if the class declares them; a trainer finds them in ``ctx`` instead.

    :raises PluginError: ``plugin.construct``.
    :raises HostcoreError: What the constructor raised on purpose, with the place in the job.
    """
    ref = selected.ref
    passes: Mapping[str, Any] = {}
    if ref.kind != "trainer" and settings_class(owner, ref) is not None:
        passes = {"settings": settings}
    _check_constructor(owner, passes, selected)
    try:
        with guarded("constructed", ref, code="plugin.construct", pointer=selected.named_at):
            return owner(**passes)
    except HostcoreError as error:
        for one in all_errors(error):
            in_settings = isinstance(one, InvalidSettings)
            one.pointer = f"{selected.pointer}{one.pointer or ''}" if in_settings else one.pointer or selected.named_at
            one.plugin = one.plugin or ref.provenance
        raise


def _check_constructor(owner: type, passes: Mapping[str, Any], selected: Selected) -> None:
    if inspect.isabstract(owner):
        # Python would name the abstract methods in the order of a set.
        missing = ", ".join(sorted(getattr(owner, "__abstractmethods__", ())))
        problem = f"{owner.__qualname__} is abstract, without {missing}"
    else:
        try:
            signature = inspect.signature(owner)
        except (TypeError, ValueError):  # written in C, or behind a metaclass's __getattr__; the call shows it
            return
        try:
            signature.bind(**passes)
        except TypeError as error:
            problem = f"the constructor of {owner.__qualname__} does not fit: {error}"
        else:
            return
    expected = "the keyword argument settings and nothing else" if passes else "no arguments"
    raise PluginError(
        f"{named(selected.ref)}: {problem}; the host passes {expected}",
        code="plugin.construct",
        pointer=selected.named_at,
        hint="A trainer finds its hyperparameters in ctx.hyperparams."
        if selected.ref.kind == "trainer"
        else "Declare a nested attrs class Settings, and take it: def __init__(self, settings).",
        plugin=selected.ref.provenance,
    )
