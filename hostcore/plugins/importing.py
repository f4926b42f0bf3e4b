"""Importing what a plugin's ``module:symbol`` names: guarded, since it runs a plugin's code."""

import ast
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from hostcore.interruption import is_by_signal
from hostcore.plugins.attribution import in_package, place, traceback_from
from hostcore.plugins.errors import PluginError, named, one_line
from hostcore.plugins.requirements import check_contract_version
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef

FORMER: Final = "gen_worker"
#: Module and name here, by the name there. What is not listed has no counterpart.
NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "StepContext": ("hostcore_hookspecs", "StepContext"),
        "StepControlHints": ("hostcore_hookspecs", "StepControl"),
        "StepResult": ("hostcore_hookspecs", "StepResult"),
        "TrainerPlugin": ("hostcore_hookspecs", "Trainer"),
        "OptimizerBundle": ("hostcore.toolkit", "OptimizerBundle"),
        "build_default_adamw_bundle": ("hostcore.toolkit", "build_default_adamw_bundle"),
        "load_trainable_module_checkpoint": ("hostcore.toolkit", "load_trainable_module_checkpoint"),
        "save_trainable_module_checkpoint": ("hostcore.toolkit", "save_trainable_module_checkpoint"),
        "seed_everything": ("hostcore.toolkit", "seed_everything"),
        "to_float_scalar": ("hostcore.toolkit", "to_float_scalar"),
    }
)
#: For a module whose source does not say what it wants: every trainer needs these.
_USUAL: Final = (ast.alias("StepContext"), ast.alias("StepResult"))


def import_plugin(ref: PluginRef, *, job_dir: Path, pointer: str | None = None) -> object:
    """The object that a plugin's entry point or import path names.

    :param job_dir: The job file's folder; import paths are looked up there too, after everything installed.
    :param pointer: Where the job names the plugin.
    :raises PluginError: ``plugin.contract_version``, ``plugin.import`` (with its traceback), ``plugin.symbol``.
    """
    check_contract_version(ref, pointer=pointer)
    module_name, _, symbol = ref.value.partition("[")[0].strip().partition(":")
    if ref.dist is None:
        folder = str(job_dir.resolve())
        if folder not in sys.path:
            sys.path.append(folder)
    module = _import(module_name, ref, job_dir=job_dir, pointer=pointer)
    if not symbol:
        return _guess(module, ref, pointer=pointer)
    found: Any = module
    for part in symbol.split("."):
        try:
            found = getattr(found, part)
        except BaseException as error:
            if is_by_signal(error):
                raise
            if not isinstance(error, AttributeError):  # a module's own __getattr__, as lazy packages have it
                raise from_exception("imported", error, code="plugin.import", ref=ref, pointer=pointer) from error
            raise _no_symbol(module, symbol, ref, pointer=pointer) from None
    return found


def from_exception(
    done: str, error: BaseException, *, code: str, ref: PluginRef, pointer: str | None, hint: str | None = None
) -> PluginError:
    """What a plugin raised, in one line, with its own traceback.

    :param done: What could not be done: ``imported``, ``constructed``.
    """
    own = in_package(ref.value.partition(":")[0].partition(".")[0])
    where = place(error, own)
    at = f" ({where[0]}:{where[1]})" if where else ""
    return PluginError(
        f"{named(ref)} could not be {done}: {one_line(error)}{at}",
        code=code,
        pointer=pointer,
        file=where[0] if where else None,
        hint=hint,
        plugin=ref.provenance,
        traceback=traceback_from(error, own),
    )


def _import(module: str, ref: PluginRef, *, job_dir: Path, pointer: str | None) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise _no_module(error.name, ref, job_dir=job_dir, pointer=pointer) from None
        hint = import_to_write(error) or f"It needs the module {error.name!r}, which is not installed here."
        raise from_exception("imported", error, code="plugin.import", ref=ref, pointer=pointer, hint=hint) from error
    except HostcoreError as error:
        raise from_exception(
            "imported", error, code="plugin.import", ref=ref, pointer=pointer, hint=error.hint
        ) from error
    except BaseException as error:  # SystemExit too: a script without a main guard must not end the host
        if is_by_signal(error):
            raise
        raise from_exception("imported", error, code="plugin.import", ref=ref, pointer=pointer) from error


def _no_module(missing: str, ref: PluginRef, *, job_dir: Path, pointer: str | None) -> PluginError:
    if ref.dist is None:
        folder = job_dir.resolve()
        message = f"{named(ref)}: there is no module {missing!r}, neither installed nor in {folder}"
        hint = f"Put {missing.partition('.')[0]}.py beside the job file, or install the package that has it."
    else:
        message = f"{named(ref)}: its module {missing!r} does not exist"
        hint = f"The installation is incomplete: pip install --force-reinstall {ref.dist}"
    return PluginError(message, code="plugin.import", pointer=pointer, hint=hint, plugin=ref.provenance)


def _no_symbol(module: ModuleType, symbol: str, ref: PluginRef, *, pointer: str | None) -> PluginError:
    import difflib

    public = [name for name in vars(module) if not name.startswith("_")]
    near = difflib.get_close_matches(symbol, public, n=1)
    return PluginError(
        f"{named(ref)}: {module.__name__} has no {symbol!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        code="plugin.symbol",
        pointer=pointer,
        file=module.__file__,
        plugin=ref.provenance,
    )


def _guess(module: ModuleType, ref: PluginRef, *, pointer: str | None) -> object:
    """The component of ``module:``: a conventional name, else the one public object with all required methods."""
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
    """Whether something looks like a component of a kind, without running any code of its own."""
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
    """The line that replaces all imports from gen-worker of a module that failed; None if it failed for another."""
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
    """What the source of a module imports from gen-worker by name."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and str(node.module).partition(".")[0] == FORMER:
            yield from node.names
