"""Import of ``module:symbol``, a plugin or an object of its settings: guarded, since it runs their code."""

import ast
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

import attrs

from hostcore.interruption import is_by_signal
from hostcore.job.forms import ImportedObject
from hostcore.job.names import as_import_path
from hostcore.plugins.attribution import in_package, place, traceback_from
from hostcore.plugins.errors import PluginError, named, one_line
from hostcore.plugins.installed import package_of
from hostcore.plugins.resolve import check_distribution
from hostcore_builtin_plugins.extras import pip_source
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.setting_types import ImportPath

FORMER: Final = "gen_worker"
#: Module and name here, by the name there. What is not listed has no counterpart.
NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "StepContext": ("hostcore_hookspecs", "StepContext"),
        "StepControlHints": ("hostcore_hookspecs", "StepControl"),
        "StepResult": ("hostcore_hookspecs", "StepResult"),
        "TrainerPlugin": ("hostcore_hookspecs", "Trainer"),
        "OptimizerBundle": ("hostcore_toolkit", "OptimizerBundle"),
        "build_default_adamw_bundle": ("hostcore_toolkit", "build_default_adamw_bundle"),
        "load_trainable_module_checkpoint": ("hostcore_toolkit", "load_trainable_module_checkpoint"),
        "save_trainable_module_checkpoint": ("hostcore_toolkit", "save_trainable_module_checkpoint"),
        "seed_everything": ("hostcore_toolkit", "seed_everything"),
        "to_float_scalar": ("hostcore_toolkit", "to_float_scalar"),
    }
)
#: For a module whose source names nothing: every trainer needs these.
_USUAL: Final = (ast.alias("StepContext"), ast.alias("StepResult"))


@attrs.frozen(kw_only=True)
class _Wanted:
    """An object to import, and its description in errors."""

    #: ``module:symbol``.
    value: str
    #: As the subject of a sentence.
    name: str
    #: What the codes of errors begin with.
    what: str = "plugin"
    #: None: it is looked up in the job file's folder, too.
    dist: str | None = None
    #: The plugin with distribution and version; None for an object of the user's.
    provenance: str | None = None
    #: Where the job names it.
    pointer: str | None = None

    @classmethod
    def plugin(cls, ref: PluginRef, pointer: str | None) -> "_Wanted":
        return cls(value=ref.value, name=named(ref), dist=ref.dist, provenance=ref.provenance, pointer=pointer)


def import_plugin(ref: PluginRef, *, job_dir: Path, pointer: str | None = None) -> object:
    """Import the object that a plugin's entry point or import path names.

    :param job_dir: The job file's folder; import paths are looked up there too, after everything installed.
    :param pointer: Where the job names the plugin.
    :raises PluginError: ``plugin.version``, ``plugin.contract_version``, ``plugin.import`` (with its traceback),
        ``plugin.symbol``.
    """
    check_distribution(ref, pointer=pointer)
    wanted = _Wanted.plugin(ref, pointer)
    module_name, _, symbol = ref.value.partition("[")[0].strip().partition(":")
    module = _import(module_name, wanted, job_dir=job_dir)
    return _symbol(module, symbol, wanted) if symbol else _guess(module, ref, pointer=pointer)


def check_object(path: ImportPath[Any], form: ImportedObject, *, job_dir: Path) -> None:
    """Import the object that a setting names, and check its type against the annotation.

    :param form: The form of the setting.
    :param job_dir: The job file's folder; the path is looked up there too, after everything installed.
    :raises PluginError: ``object.import`` (with its traceback), ``object.symbol``, ``object.kind``; without a pointer.
    """
    noun, accepts = form.required
    wanted = _Wanted(value=path.path, name=path.path, what="object", pointer="")
    module_name, _, symbol = path.path.partition(":")
    module = _import(module_name, wanted, job_dir=job_dir)
    found = _symbol(module, symbol, wanted)
    if not accepts(found):
        raise PluginError(
            f"{path} is {_kind_of(found)}; expected {noun}", code="object.kind", pointer="", file=module.__file__
        )


def _kind_of(found: object) -> str:
    if inspect.isclass(found):
        return f"the class {found.__module__}.{found.__qualname__}"
    if inspect.ismodule(found):
        return "a module"
    return "a function" if inspect.isroutine(found) else f"an instance of {type(found).__qualname__}"


@contextmanager
def guarded(done: str, ref: PluginRef, *, code: str, pointer: str | None) -> Iterator[None]:
    """Turn exceptions of a plugin into :class:`PluginError`; its own errors of the contract pass.

    :param done: As :func:`from_exception` takes it.
    """
    try:
        yield
    except HostcoreError:
        raise
    except BaseException as error:
        if is_by_signal(error):
            raise
        raise from_exception(done, error, code=code, ref=ref, pointer=pointer) from error


def from_exception(
    done: str, error: BaseException, *, code: str, ref: PluginRef, pointer: str | None, hint: str | None = None
) -> PluginError:
    """Convert an exception of a plugin: one line, with its own traceback.

    :param done: The action that failed: ``imported``, ``constructed``.
    """
    return _failed(done, error, _Wanted.plugin(ref, pointer), code=code, hint=hint)


def _failed(
    done: str, error: BaseException, wanted: _Wanted, *, code: str | None = None, hint: str | None = None
) -> PluginError:
    own = in_package(package_of(wanted.value))
    where = place(error, own)
    at = f" ({where[0]}:{where[1]})" if where else ""
    return PluginError(
        f"{wanted.name} could not be {done}: {one_line(error)}{at}",
        code=code or f"{wanted.what}.import",
        pointer=wanted.pointer,
        file=where[0] if where else None,
        hint=hint,
        plugin=wanted.provenance,
        traceback=traceback_from(error, own),
    )


def _import(module: str, wanted: _Wanted, *, job_dir: Path) -> ModuleType:
    if wanted.dist is None:
        folder = str(job_dir.resolve())
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise _no_module(error.name, wanted, job_dir=job_dir) from None
        hint = import_to_write(error) or f"It needs the module {error.name!r}, which is not installed here."
        raise _failed("imported", error, wanted, hint=hint) from error
    except HostcoreError as error:
        raise _failed("imported", error, wanted, hint=error.hint) from error
    except BaseException as error:  # SystemExit too: a script without a main guard must not end the host
        if is_by_signal(error):
            raise
        raise _failed("imported", error, wanted) from error


def _symbol(module: ModuleType, symbol: str, wanted: _Wanted) -> object:
    found: Any = module
    for part in symbol.split("."):
        try:
            found = getattr(found, part)
        except BaseException as error:
            if is_by_signal(error):
                raise
            if not isinstance(error, AttributeError):  # a module's own __getattr__, as lazy packages have it
                raise _failed("imported", error, wanted) from error
            raise _no_symbol(module, symbol, wanted) from None
    return found


def _no_module(missing: str, wanted: _Wanted, *, job_dir: Path) -> PluginError:
    if wanted.dist is None:
        folder = job_dir.resolve()
        message = f"{wanted.name}: there is no module {missing!r}, neither installed nor in {folder}"
        hint = f"Put {missing.partition('.')[0]}.py beside the job file, or install the package that has it."
        if missing.endswith(".py"):
            hint = f"did you mean {as_import_path(missing)}{wanted.name.partition(':')[2]}?"
    else:
        message = f"{wanted.name}: its module {missing!r} does not exist"
        hint = f"The installation is incomplete: pip install --force-reinstall {pip_source(wanted.dist)}"
    return PluginError(
        message, code=f"{wanted.what}.import", pointer=wanted.pointer, hint=hint, plugin=wanted.provenance
    )


def _no_symbol(module: ModuleType, symbol: str, wanted: _Wanted) -> PluginError:
    import difflib

    public = [name for name in vars(module) if not name.startswith("_")]
    near = difflib.get_close_matches(symbol, public, n=1)
    return PluginError(
        f"{wanted.name}: {module.__name__} has no {symbol!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        code=f"{wanted.what}.symbol",
        pointer=wanted.pointer,
        file=module.__file__,
        plugin=wanted.provenance,
    )


def _guess(module: ModuleType, ref: PluginRef, *, pointer: str | None) -> object:
    """Return the component of ``module:``: a conventional name, else the only object with all required methods."""
    kind = KINDS[ref.kind]
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    camel = "".join(part.title() for part in kind.name.split("_"))
    for name in (kind.name.upper(), camel, kind.name):
        if name in public and not _is_of_the_contract(public[name]):
            return public[name]
    fitting = {name: value for name, value in public.items() if _fits(value, kind)}
    own = {name: value for name, value in fitting.items() if _module_of(value) == module.__name__}
    chosen = own or fitting
    if len(chosen) == 1:
        return next(iter(chosen.values()))
    if chosen:
        message = f"{module.__name__} has more than one {kind.label}: {', '.join(sorted(chosen))}"
        hint = f"Write which: {' or '.join(f'{module.__name__}:{name}' for name in sorted(chosen))}"
    else:
        message = f"{module.__name__} has no {kind.label}: nothing called {kind.name.upper()}, {camel} or {kind.name}"
        needs = (
            f"and nothing with the methods {', '.join(kind.required)}" if kind.required else "and no class with hooks"
        )
        message, hint = f"{message}, {needs}", f"Write {module.__name__}:SYMBOL."
    raise PluginError(
        message, code="plugin.symbol", pointer=pointer, file=module.__file__, hint=hint, plugin=ref.provenance
    )


def _fits(value: object, kind: Kind) -> bool:
    """Return whether a value looks like a component of a kind, without running any code of its own."""
    owner = value if inspect.isclass(value) else type(value)
    if isinstance(value, ModuleType) or inspect.isabstract(owner) or _is_of_the_contract(value):
        return False
    methods = {name for layer in owner.__mro__ for name in vars(layer)}
    if kind.required:
        return all(name in methods for name in kind.required)
    return any(name in methods for name in kind.hooks)


def _is_of_the_contract(value: object) -> bool:
    """``from hostcore_hookspecs import Trainer`` puts the protocol where a trainer is looked for."""
    return bool(vars(value).get("_is_protocol", False)) if inspect.isclass(value) else False


def _module_of(value: object) -> str | None:
    module = getattr(value if inspect.isclass(value) else type(value), "__module__", None)
    return module if isinstance(module, str) else None


def import_to_write(error: ModuleNotFoundError) -> str | None:
    """Return the line that replaces the imports from gen-worker of a module that failed; None for other modules."""
    if (error.name or "").partition(".")[0] != FORMER:
        return None
    where = place(error, lambda frame: not frame.f_code.co_filename.startswith("<"))
    wanted = [*_imported(Path(where[0]))] if where else []
    names: defaultdict[str, list[str]] = defaultdict(list)
    missing = []
    for alias in wanted or _USUAL:
        if alias.name not in NAMES:
            missing.append(alias.name)
            continue
        module, name = NAMES[alias.name]
        local = alias.asname or alias.name
        names[module].append(name if local == name else f"{name} as {local}")
    line = "; ".join(f"from {module} import {', '.join(dict.fromkeys(some))}" for module, some in names.items())
    without = f"without {', '.join(missing)}, which hostcore does not have" if missing else ""
    return ", ".join(filter(None, (line and f"write: {line}", without)))


def _imported(file: Path) -> Iterator[ast.alias]:
    """Yield the names that the source of a module imports from gen-worker."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] == FORMER:
            yield from node.names
