"""Building the environment of a job: resolve it once, build it once per machine, find it again by what is in it.

What a ``pylock.toml`` (PEP 751) has from this machine (folders, archives, wheels) may change at any time: its files'
names, sizes and times belong to what is in the environment.
"""

import functools
import hashlib
import os
import platform
import re
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from hostcore.cli.wording import lasting
from hostcore.job.sections import EnvironmentSpec
from hostcore.supervisor.environment import OWN, BuiltEnvironment, EnvironmentBuilder
from hostcore_environments.cache import FOLDER_VARIABLE, EnvironmentCache
from hostcore_environments.own_wheels import digest_of, own_distributions
from hostcore_environments.resolutions import Resolution
from hostcore_environments.uv import EnvironmentFailed, Uv

#: uv takes no other name.
_LOCK: Final = "pylock.toml"
_PATH: Final = re.compile(r"""(?P<key>\bpath\s*=\s*)(?P<quote>["'])(?P<path>[^"'\n]+)(?P=quote)""")
#: What is written when a package is used or built, and does not belong to it.
_PASSING: Final = ("__pycache__", ".git", ".venv", "build", "dist")
_LOCK_TOGETHER: Final = (
    "a lock has what hostcore needs when the project that is locked has hostcore among its dependencies; "
    "or give requirements in place of the lock"
)


class UvBuilder(EnvironmentBuilder):
    """Builds environments with uv, in the cache of this machine."""

    def build(
        self, environment: EnvironmentSpec, *, lock: str | None, job_dir: Path, tell: Callable[[str], object]
    ) -> BuiltEnvironment:
        """See :class:`hostcore.supervisor.environment.EnvironmentBuilder`."""
        try:
            return self._built(environment, lock=lock, job_dir=job_dir, tell=tell)
        except EnvironmentFailed as error:
            error.pointer = error.pointer or f"/environment/{'lock' if environment.lock else 'requirements'}"
            if "No space left" in error.message:
                error.pointer, error.hint = "/environment", f"make room: {_where()}; {error.hint}"
            raise
        except (OSError, UnicodeDecodeError) as error:
            told = f"the environment cannot be built: {error}"
            raise EnvironmentFailed(told, pointer="/environment", hint=_where()) from error

    def _built(
        self, environment: EnvironmentSpec, *, lock: str | None, job_dir: Path, tell: Callable[[str], object]
    ) -> BuiltEnvironment:
        cache = EnvironmentCache()
        own = own_distributions() if environment.used_by == "worker" else ()
        python = environment.python or sys.executable
        uv = Uv(folder=job_dir, log=cache.log(), tell=tell, indexes=environment.indexes)
        with tempfile.TemporaryDirectory(prefix="hostcore-environment-") as folder:
            lock_file = Path(folder) / _LOCK
            wheels = functools.cache(lambda: [one.write(lock_file.parent) for one in own])
            if lock is None and environment.lock is not None:
                lock = _locked(uv, Path(environment.lock), lock_file)
            elif lock is None:
                needs = [*_machine(), *(one.requirements for one in own), *environment.indexes]
                known = Resolution.of(
                    environment.requirements, needs=needs, python=python, job_dir=job_dir, folder=cache.resolutions
                )
                if found := known.read():
                    lock, seconds = found
                    tell(f"environment: versions as they were resolved {lasting(seconds)} ago")
                else:
                    if environment.python:
                        _make(uv, python, lock_file.with_name("python"))  # is there one, before it is resolved for
                    lock = _resolve(uv, environment.requirements, wheels(), python, lock_file)
                    known.write(lock)
            whole_lock, local = lock, _local_packages(lock)

            def build(target: Path) -> dict[str, Any]:
                tell("environment: building it")
                lock_file.write_text(whole_lock)
                _make(uv, python, target)
                installs = ("--python", target / "bin" / "python")
                anew = [argument for name in local for argument in ("--refresh-package", name)]
                uv("pip", "sync", *installs, *anew, lock_file, doing="installing")
                if own:
                    local_only = (*installs, "--offline", "--no-deps")
                    uv("pip", "install", *local_only, *wheels(), made_here=True, doing="installing hostcore")
                uv("pip", "check", *installs, hint=_LOCK_TOGETHER if own else "")
                return {"made_for": list(environment.requirements) or [environment.lock], "python": _version(target)}

            key = _key(lock, digest_of(own), python, *_machine(), *map(_state, local.values()))
            target = cache.get(key, build, wait=lambda: tell(f"environment: another process builds it, {uv.age}"))
        return BuiltEnvironment(python=str(target / "bin" / "python"), lock=lock)


def _resolve(uv: Uv, requirements: Sequence[str], wheels: Sequence[Path], python: str, lock: Path) -> str:
    """Find versions for all requirements, and for those of the host itself, which are not written into the lock.

    :param wheels: Those of the host; none where no worker is to run.
    """
    wanted = lock.with_name("requirements.in")
    own = [f"{name} @ {wheel.as_uri()}" for name, wheel in zip(OWN, wheels, strict=bool(wheels))]
    wanted.write_text("\n".join([*map(_line, requirements), *own, ""]))
    left_out = [argument for name in OWN for argument in ("--no-emit-package", name)]
    uv(
        *("pip", "compile", "--format", "pylock.toml", "--no-header", "--python", python, *left_out),
        *("--output-file", lock, wanted),
        resolves=True,
        doing="resolving the requirements",
    )
    return _with_absolute_paths(lock.read_text(), lock.parent)


def _line(requirement: str) -> str:
    """Return a requirement as a line for uv: as it was parsed, or a path or an address as it is."""
    try:
        return str(Requirement(requirement))
    except InvalidRequirement:
        return requirement


def _make(uv: Uv, python: str, target: Path) -> None:
    """Make a virtual environment with nothing in it."""
    try:
        uv("venv", "--no-project", "--relocatable", "--python", python, target, doing=f"getting Python {python}")
    except EnvironmentFailed as error:
        error.pointer = "/environment/python"
        raise


def _locked(uv: Uv, given: Path, lock: Path) -> str:
    """The lock of a job: as it is, or that of a uv project."""
    if not given.is_file():
        raise EnvironmentFailed(f"there is no lock {given}", hint="name a pylock.toml, or the uv.lock of a project")
    if given.name != "uv.lock":
        return _with_absolute_paths(given.read_text(), given.parent)
    uv(
        *("export", "--project", given.parent, "--frozen", "--no-emit-project", "--no-header"),
        *("--format", "pylock.toml", "--output-file", lock),
    )
    return _with_absolute_paths(lock.read_text(), lock.parent)


def _where() -> str:
    """Hint that names the folder of environments."""
    return f"environments lie in {EnvironmentCache().folder}; {FOLDER_VARIABLE} names another folder"


def _machine() -> tuple[str, ...]:
    """Return the platform that binary packages are made for."""
    return (sys.version, sysconfig.get_platform(), *platform.libc_ver())


def _key(*parts: str) -> str:
    """Return a short hash of everything that decides the contents of an environment."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _version(environment: Path) -> str:
    """The version of Python in a virtual environment."""
    lines = (environment / "pyvenv.cfg").read_text().splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith("version_info"))


def _with_absolute_paths(lock: str, folder: Path) -> str:
    """A lock that means the same in any folder.

    :param folder: That its relative paths start at.
    """

    def absolute(found: "re.Match[str]") -> str:
        path = os.path.normpath(folder / found["path"])
        return f"{found['key']}{found['quote']}{path}{found['quote']}"

    return _PATH.sub(absolute, lock)


def _local_packages(lock: str) -> Mapping[str, Path]:
    """Return the packages that are installed from a path, by name; none from an invalid lock, which uv refuses."""
    try:
        packages = tomllib.loads(lock).get("packages", [])
        return {package["name"]: Path(path) for package in packages for path in _paths(package)}
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError):
        return {}


def _paths(package: Mapping[str, Any]) -> Iterator[str]:
    for source in (package.get("directory"), package.get("archive"), package.get("sdist"), *package.get("wheels", [])):
        if source and "path" in source:
            yield source["path"]


def _state(path: Path) -> str:
    """Names, sizes and times of the files of a package: another text once one of them was changed."""
    files = [path] if path.is_file() else sorted(_files(path))
    return "\n".join(f"{file}\0{(at := file.stat()).st_size}\0{at.st_mtime_ns}" for file in files)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in _PASSING and not one.endswith(".egg-info")]
        yield from (file for name in names if (file := Path(parent, name)).is_file())
