"""Loading: a selected plugin is imported, checked, and constructed with its settings.

Each step runs code of the plugin. Whatever that raises becomes one error with the plugin's own traceback.
"""

import difflib
import importlib
import inspect
import sys
from abc import ABCMeta
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.errors import all_errors
from hostcore.interruption import is_by_signal
from hostcore.job.names import as_import_path, canonical_plugin
from hostcore.plugins.contract import implementations
from hostcore.plugins.errors import PluginError, from_exception, guarded, named
from hostcore.plugins.installed import Discovered, module_and_symbol
from hostcore.plugins.published import import_to_write
from hostcore.plugins.resolve import Selected, check_distribution, resolve
from hostcore.plugins.settings import refuse_run_files, settings_class, structured
from hostcore.plugins.signatures import Implementation
from hostcore_builtin_plugins.extras import pip_source
from hostcore_hookspecs.errors import HostcoreError, InvalidSettings
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.setting_types import ImportPath
from hostcore_hookspecs.step import Capabilities

if TYPE_CHECKING:
    from hostcore.job.forms import CheckObject, ImportedObject
    from hostcore.job.sections import ComponentUse

PRECISIONS: Final = ("fp32", "bf16", "fp16")


@attrs.frozen(kw_only=True, eq=False)
class Component:
    """One instance of a plugin's class, for one use by the job."""

    ref: PluginRef
    kind: Kind
    instance: Any
    #: An instance of the class's ``Settings`` (a trainer: ``Hyperparams``), or the plain mapping if it declares none.
    settings: Any
    #: Those that a trainer declares; the defaults for all other kinds.
    capabilities: Capabilities
    #: Names this use: ``trainer:flight_delay``, ``callback:0:early-stopping``.
    use: str
    #: The hooks that it implements or wraps.
    implementations: tuple[Implementation, ...]

    @property
    def hook_names(self) -> tuple[str, ...]:
        """Return the names of the hooks that it implements, without those that it only wraps."""
        return tuple(found.hook for found in self.implementations if not found.wrapper)


def load_component(
    selected: Selected,
    *,
    job_dir: Path,
    import_paths: bool | Collection[str],
    run_dir: Path | None = None,
    check_objects: bool = True,
) -> Component:
    """Import a plugin and make a component of it.

    :param job_dir: The job file's folder: import paths are looked up there, relative paths in settings start there.
    :param import_paths: The job's key: whether its plugins may run code that it names, or those that may. True for
        plugins that no job names.
    :param run_dir: The run directory, whose files no setting may name; None: of no run.
    :param check_objects: Whether to import the objects that its settings name.
    :raises PluginError: It cannot be imported or constructed; what it raised is the cause and in ``traceback``.
    :raises InvalidSettings: Raised by its constructor; the pointer is one of the job.
    :raises Errors: Several at once: its secrets, its settings, or everything that is wrong with its methods.
    """
    ref = selected.ref
    may_run_code = import_paths if isinstance(import_paths, bool) else qualified(ref) in import_paths
    try:
        if ref.dist is None and not may_run_code:
            raise _import_path_refused(f"{ref.value} is an import path")
        if ref.runs_code and not may_run_code:
            raise _import_path_refused(f"{named(ref)} runs code or programs that a job names")
        owner, instance = import_class(ref, job_dir=job_dir)
        capabilities = declared_capabilities(owner, ref)
        objects = _objects(ref, job_dir=job_dir, check_objects=check_objects, import_paths=may_run_code)
        settings = structured(owner, selected, job_dir=job_dir, check_object=objects)
        if run_dir is not None:
            refuse_run_files(settings, selected, run_dir)
        instance = construct(owner, settings, selected) if instance is None else instance
        found = implementations(owner, ref, instance=instance)
    except HostcoreError as error:
        for one in all_errors(error):
            one.pointer = selected.named_at if one.pointer is None else one.pointer
        raise
    return Component(
        ref=ref,
        kind=KINDS[ref.kind],
        instance=instance,
        settings=settings,
        capabilities=capabilities,
        use=selected.use,
        implementations=found,
    )


def load_named(
    use: "ComponentUse",
    kind: str,
    discovered: Discovered,
    *,
    pointer: str,
    job_dir: Path,
    import_paths: bool | Collection[str],
) -> Component:
    """Load a plugin by its name and its settings, apart from the others of a job.

    :param pointer: Where the job, or the operator's file, names it.
    :raises HostcoreError: When it is not installed, and as :func:`load_component` does.
    """
    ref = resolve(use.use, kind, discovered, pointer=pointer)
    selected = Selected(ref=ref, settings=use.settings, pointer=pointer)
    return load_component(selected, job_dir=job_dir, import_paths=import_paths)


def qualified(ref: PluginRef) -> str:
    """Return the name of a plugin with that of its distribution, both canonical: no other plugin of its kind has it."""
    return canonical_plugin(f"{ref.dist}/{ref.name}") if ref.dist else ref.name


def import_class(ref: PluginRef, *, job_dir: Path) -> tuple[type, object | None]:
    """Import the class of a plugin; with the instance, if its import path names one.

    :param job_dir: The job file's folder; import paths are looked up there too, after everything installed.
    :raises PluginError: ``plugin.version``, ``plugin.contract_version``, ``plugin.import`` (with its traceback),
        ``plugin.symbol``, ``plugin.not_a_class``.
    """
    check_distribution(ref)
    module_name, symbol = module_and_symbol(ref.value)
    module = _import(module_name, ref, None if ref.dist else job_dir)
    found = _symbol(module, symbol, ref) if symbol else _guess(module, ref)
    if inspect.isclass(found):
        return found, None
    if isinstance(found, ModuleType):
        what, hint = "a module", "Name the class in it: module:Class."
    elif inspect.isroutine(found):
        what, hint = "a function", f"Name a class; a {KINDS[ref.kind].label} is a class with methods."
    elif ref.dist is not None:
        what = f"an instance of {type(found).__name__}"
        hint = f"Register the class, so that every use gets an instance of its own: {type(found).__name__}."
    else:
        return type(found), found
    raise PluginError(f"{named(ref)} is {what}, not a class", code="plugin.not_a_class", hint=hint, about=ref)


def declared_capabilities(owner: type, ref: PluginRef) -> Capabilities:
    """Return the capabilities that a trainer declares; the defaults without a declaration, and for all other kinds.

    :raises PluginError: ``plugin.capabilities``.
    """
    declared = inspect.getattr_static(owner, "CAPABILITIES", None) if ref.kind == "trainer" else None
    if declared is None:
        return Capabilities()
    if not isinstance(declared, Capabilities):
        problem = f"CAPABILITIES is a {type(declared).__name__}, not a Capabilities"
    elif not isinstance(declared.precisions, tuple) or not set(declared.precisions) <= set(PRECISIONS):
        problem = f"CAPABILITIES.precisions is {declared.precisions!r}, not a tuple of {', '.join(PRECISIONS)}"
    else:
        return declared
    hint = 'Write CAPABILITIES = Capabilities(precisions=("fp32", "bf16")), imported from hostcore_hookspecs.'
    raise PluginError(f"{named(ref)}: {problem}", code="plugin.capabilities", hint=hint, about=ref)


def construct(owner: type, settings: Any, selected: Selected) -> Any:
    """Make an instance, with ``settings=`` if the class declares them; a trainer finds them in ``ctx`` instead.

    :raises PluginError: ``plugin.construct``.
    :raises HostcoreError: What the constructor raised on purpose, with the place in the job.
    """
    ref = selected.ref
    takes_settings = ref.kind != "trainer" and settings_class(owner, ref) is not None
    passes: Mapping[str, Any] = {"settings": settings} if takes_settings else {}
    _check_constructor(owner, passes, ref)
    try:
        with guarded("constructed", ref, code="plugin.construct"):
            return owner(**passes)
    except HostcoreError as error:
        for one in all_errors(error):
            in_settings = isinstance(one, InvalidSettings)
            one.pointer = f"{selected.pointer}{one.pointer or ''}" if in_settings else one.pointer or selected.named_at
        raise


def _check_constructor(owner: type, passes: Mapping[str, Any], ref: PluginRef) -> None:
    if inspect.isabstract(owner):
        # Python would name the abstract methods in the order of a set.
        missing = ", ".join(sorted(getattr(owner, "__abstractmethods__", ())))
        problem = f"{owner.__qualname__} is abstract, without {missing}"
    else:
        try:
            signature = _constructor_signature(owner)
        except (TypeError, ValueError):  # written in C, or behind a metaclass's __getattr__; the call shows it
            return
        try:
            signature.bind(**passes)
        except TypeError as error:
            problem = f"the constructor of {owner.__qualname__} does not fit: {error}"
        else:
            return
    expected = "the keyword argument settings and nothing else" if passes else "no arguments"
    hint = "Declare a nested attrs class Settings, and take it: def __init__(self, settings)."
    if ref.kind == "trainer":
        hint = "A trainer finds its hyperparameters in ctx.hyperparams."
    message = f"{named(ref)}: {problem}; the host passes {expected}"
    raise PluginError(message, code="plugin.construct", hint=hint, about=ref)


def _constructor_signature(owner: type) -> inspect.Signature:
    """Return the signature of a class.

    A class without a constructor takes nothing. ``inspect.signature`` would copy ``sys.modules`` to find that.
    """
    has_own = any(getattr(owner, name) is not getattr(object, name) for name in ("__init__", "__new__"))
    return inspect.signature(owner) if has_own or type(owner) not in (type, ABCMeta) else inspect.Signature()


def _import_path_refused(found: str, pointer: str | None = None) -> HostcoreError:
    return HostcoreError(
        f"{found}, and `import_paths` of the job does not allow it",
        code="job.import_paths",
        pointer=pointer,
        hint="a service decides this for its jobs: use a plugin that is installed, or ask its operator",
    )


def _objects(ref: PluginRef, *, job_dir: Path, check_objects: bool, import_paths: bool) -> "CheckObject":
    """Return the check of an import path in a plugin's settings."""
    from hostcore.job.forms import unchecked

    def refuse(path: ImportPath[Any], _form: Any) -> None:
        if KINDS[ref.kind].room == "worker":
            raise _import_path_refused(f"{path} is an import path", "")
        raise HostcoreError(
            f"{path} is code of the job's, which a plugin of this kind cannot be given: it runs outside the worker",
            code="settings.class",
            pointer="",
            hint="settings of trainers, data sources and callbacks may be of type ImportPath",
        )

    if KINDS[ref.kind].room != "worker" or not import_paths:
        return refuse
    return partial(_check_object, job_dir=job_dir) if check_objects else unchecked


def _check_object(path: ImportPath[Any], form: "ImportedObject", *, job_dir: Path) -> None:
    """Import the object that a setting names, and check its type against the annotation.

    :raises PluginError: ``object.import`` (with its traceback), ``object.symbol``, ``object.kind``; without a pointer.
    """
    noun, accepts = form.required
    module_name, symbol = module_and_symbol(path.path)
    module = _import(module_name, path.path, job_dir)
    found = _symbol(module, symbol, path.path)
    if not accepts(found):
        message = f"{path} is {_kind_of(found)}; expected {noun}"
        raise PluginError(message, code="object.kind", file=module.__file__)


def _kind_of(found: object) -> str:
    if inspect.isclass(found):
        return f"the class {found.__module__}.{found.__qualname__}"
    if inspect.ismodule(found):
        return "a module"
    return "a function" if inspect.isroutine(found) else f"an instance of {type(found).__qualname__}"


def _import(module: str, ref: PluginRef | str, job_dir: Path | None) -> ModuleType:
    """Import a module.

    :param ref: The plugin that it is imported for, or the import path of an object.
    :param job_dir: Where it is looked up as well, after everything installed.
    """
    code = f"{_what(ref)}.import"
    if job_dir is not None and (folder := str(job_dir.resolve())) not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(module)
    except BaseException as error:  # SystemExit too: a script without a main guard must not end the host
        if is_by_signal(error):
            raise
        hint = error.hint if isinstance(error, HostcoreError) else None
        if isinstance(error, ModuleNotFoundError):
            if error.name and (module == error.name or module.startswith(error.name + ".")):
                raise _no_module(error.name, ref, job_dir) from None
            hint = import_to_write(error) or f"It needs the module {error.name!r}, which is not installed here."
        raise from_exception("imported", error, code=code, ref=ref, hint=hint) from error


def _symbol(module: ModuleType, symbol: str, ref: PluginRef | str) -> object:
    found: Any = module
    for part in symbol.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [name for name in vars(module) if not name.startswith("_")]
            near = difflib.get_close_matches(symbol, public, n=1)
            message = f"{named(ref)}: {module.__name__} has no {symbol!r}"
            message += f"; did you mean {near[0]!r}?" if near else ""
            raise PluginError(message, code=f"{_what(ref)}.symbol", file=module.__file__, about=ref) from None
        except BaseException as error:  # of a module's own __getattr__, as lazy packages have it
            if is_by_signal(error):
                raise
            raise from_exception("imported", error, code=f"{_what(ref)}.import", ref=ref) from error
    return found


def _what(ref: PluginRef | str) -> str:
    return "object" if isinstance(ref, str) else "plugin"


def _no_module(missing: str, ref: PluginRef | str, job_dir: Path | None) -> PluginError:
    if job_dir is not None:
        message = f"there is no module {missing!r}, neither installed nor in {job_dir.resolve()}"
        hint = f"Put {missing.partition('.')[0]}.py beside the job file, or install the package that has it."
        if missing.endswith(".py"):
            hint = f"did you mean {as_import_path(missing)}{named(ref).partition(':')[2]}?"
    else:
        assert isinstance(ref, PluginRef)
        message = f"its module {missing!r} does not exist"
        hint = f"The installation is incomplete: pip install --force-reinstall {pip_source(ref.dist or '')}"
    return PluginError(f"{named(ref)}: {message}", code=f"{_what(ref)}.import", hint=hint, about=ref)


def _guess(module: ModuleType, ref: PluginRef) -> object:
    """Return the component of ``module:``: a conventional name, else the only object with all required methods."""
    kind = KINDS[ref.kind]
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    camel = "".join(part.title() for part in kind.name.split("_"))
    for name in (kind.name.upper(), camel, kind.name):
        if name in public and not _is_of_the_contract(public[name]):
            return public[name]
    fitting = {name: value for name, value in public.items() if _fits(value, kind)}
    chosen = {name: value for name, value in fitting.items() if _module_of(value) == module.__name__} or fitting
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    if chosen:
        message = f"{module.__name__} has more than one {kind.label}: {', '.join(sorted(chosen))}"
        hint = f"Write which: {' or '.join(f'{module.__name__}:{name}' for name in sorted(chosen))}"
    else:
        needs = f"nothing with the methods {', '.join(kind.required)}" if kind.required else "no class with hooks"
        message = f"{module.__name__} has no {kind.label}: nothing called {kind.name.upper()}, {camel} or {kind.name}"
        message, hint = f"{message}, and {needs}", f"Write {module.__name__}:SYMBOL."
    raise PluginError(message, code="plugin.symbol", file=module.__file__, hint=hint, about=ref)


def _fits(value: object, kind: Kind) -> bool:
    """Return whether a value looks like a component of a kind, without running any code of its own."""
    owner = value if inspect.isclass(value) else type(value)
    if isinstance(value, ModuleType) or inspect.isabstract(owner) or _is_of_the_contract(value):
        return False
    methods = {name for layer in owner.__mro__ for name in vars(layer)}
    return methods.issuperset(kind.required) if kind.required else not methods.isdisjoint(kind.hooks)


def _is_of_the_contract(value: object) -> bool:
    """Return whether a value is a protocol: ``from hostcore_hookspecs import Trainer`` puts it among the trainers."""
    return bool(vars(value).get("_is_protocol", False)) if inspect.isclass(value) else False


def _module_of(value: object) -> str | None:
    module = getattr(value if inspect.isclass(value) else type(value), "__module__", None)
    return module if isinstance(module, str) else None
