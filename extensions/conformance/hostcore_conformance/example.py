"""Example of a plugin from its author: its use, a harness, and the failures that are known.

Given in code, on the command line, or in the nearest ``pyproject.toml``::

    [tool.hostcore.conformance.my-trainer]
    job = "tests/job.json"
    expected_failures = { "trainer.loss_falls" = "an adversarial loss does not fall" }
"""

import contextlib
import importlib.util
import inspect
import sys
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.job.files import read_job
from hostcore.job.paths import with_absolute_paths
from hostcore.job.wording import did_you_mean, near
from hostcore_conformance.errors import InvalidExample
from hostcore_hookspecs.errors import HostcoreError

_KEYS: Final = ("settings", "job", "harness", "expected_failures")
_TABLE: Final = "tool.hostcore.conformance"


@attrs.frozen(kw_only=True)
class Example:
    """Use of a plugin, as its author would show it."""

    #: As they would stand in a job: of a data source the keys of ``dataset``, of a callback those beside ``use``.
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    #: A small job, for trainers and callbacks; paths are absolute. None: there is none.
    job: Mapping[str, Any] | None = None
    #: The folder that import paths and the relative paths of settings start at.
    folder: Path = attrs.field(factory=Path.cwd)
    #: A class, an object, or a function that makes a context manager; None if there is none.
    harness: Any = None
    #: The reason for each check that is known to fail, by id.
    expected_failures: Mapping[str, str] = attrs.field(factory=dict)

    @contextlib.contextmanager
    def opened_harness(self) -> Iterator[Any]:
        """The harness, ready to be used; None if there is none."""
        is_made = inspect.isclass(self.harness) or (callable(self.harness) and not hasattr(self.harness, "__enter__"))
        harness: Any = self.harness() if is_made else self.harness
        if hasattr(harness, "__enter__"):
            with harness as opened:
                yield opened
        else:
            yield harness


def make_example(
    *,
    settings: Mapping[str, Any] | None = None,
    job: str | Path | Mapping[str, Any] | None = None,
    harness: Any = None,
    expected_failures: Mapping[str, str] | None = None,
    folder: Path | None = None,
    base: Example | None = None,
) -> Example:
    """An example, from what was given in code or on a command line.

    :param job: A job file, or the job itself.
    :param folder: Where relative paths start; the working directory if not given. Those in a job file start at its
        own folder.
    :param base: What holds where nothing else is given.
    :raises HostcoreError: The job file cannot be read.
    """
    base = base or Example(folder=folder or Path.cwd())
    folder = folder or base.folder
    changes: dict[str, Any] = {"folder": folder}
    if settings is not None:
        changes["settings"] = settings
    if isinstance(job, Mapping):
        changes["job"] = with_absolute_paths(job, folder)
    elif job is not None:
        path = (folder / job).absolute()
        changes["job"] = with_absolute_paths(read_job(path).job, path.parent)
        changes["folder"] = path.parent
    if harness is not None:
        changes["harness"] = harness
    if expected_failures is not None:
        changes["expected_failures"] = expected_failures
    return attrs.evolve(base, **changes)


def nearest_project(start: Path) -> Path | None:
    """The ``pyproject.toml`` of a folder, or of the nearest one above that has any."""
    start = start.absolute()
    return next((path for one in (start, *start.parents) if (path := one / "pyproject.toml").is_file()), None)


def declared_example(name: str, kind: str, *, start: Path) -> Example | None:
    """Read a plugin's example in the nearest ``pyproject.toml``; None without one.

    :param name: The plugin's registered name; the table is called so, or ``kind:name``.
    :param start: The folder to look in first, and then above.
    :raises InvalidExample: The table has something that the kit does not understand.
    """
    file = nearest_project(start)
    if file is None:
        return None
    tables = _tables(file)
    table = tables.get(f"{kind}:{name}", tables.get(name))
    if table is None:
        return None
    where = f"[{_TABLE}.{name}]"
    if not isinstance(table, Mapping):
        raise InvalidExample(f"{where} is not a table", file=str(file))
    for key, value in table.items():
        _require_known(key, value, where, file)
    harness = table.get("harness")
    return make_example(
        settings=table.get("settings"),
        job=table.get("job"),
        harness=load_symbol(harness, file.parent) if harness is not None else None,
        expected_failures=table.get("expected_failures"),
        folder=file.parent,
    )


def _tables(file: Path) -> Mapping[str, Any]:
    try:
        document: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidExample(f"{file.name} cannot be read: {error}", file=str(file)) from error
    for key in _TABLE.split("."):
        document = document.get(key, {}) if isinstance(document, Mapping) else {}
    return document if isinstance(document, Mapping) else {}


def _require_known(key: str, value: object, where: str, file: Path) -> None:
    if key not in _KEYS:
        hint = did_you_mean(near(key, _KEYS)) or f"its keys are {', '.join(_KEYS)}"
        raise InvalidExample(f"{where} has no key {key!r}", file=str(file), hint=hint)
    wanted: tuple[type, ...] = {"job": (str, Mapping), "harness": (str,)}.get(key, (Mapping,))
    if not isinstance(value, wanted):
        names = " or ".join({"str": "a string", "Mapping": "a table"}[one.__name__] for one in wanted)
        raise InvalidExample(f"{key} in {where} is a {type(value).__name__}, not {names}", file=str(file))


def load_symbol(reference: str, folder: Path) -> Any:
    """Load the object behind ``tests/harness.py:Sink`` or ``package.module:Sink``.

    :param folder: Where the path of a file starts.
    :raises InvalidExample: There is no such thing, or importing it fails.
    """
    module_name, _, symbol = reference.partition(":")
    try:
        if module_name.endswith(".py"):
            module = _module_of_file(folder / module_name)
        else:
            module = importlib.import_module(module_name)
        return getattr(module, symbol)
    except HostcoreError:
        raise
    except Exception as error:
        raise InvalidExample(
            f"the harness {reference!r} cannot be loaded: {type(error).__name__}: {error}",
            hint="Write a file and a name in it, tests/harness.py:Sink, or package.module:Sink.",
        ) from error


def _module_of_file(path: Path) -> Any:
    name = f"hostcore_conformance_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that what it defines can be pickled
    spec.loader.exec_module(module)
    return module
