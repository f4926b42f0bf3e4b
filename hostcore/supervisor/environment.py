"""The Python that a job's workers run in, or the programs that they start: that of the job's ``environment``.

Plugins of the worker's room (trainers, data sources, callbacks) are found where the workers import them; those of the
supervisor's room (reporters, uploaders, resolvers, launchers, policies) where the host is. The contract, the feed,
checkpoints and signals are as in any other run. The environment is asked where it looks for modules; its plugins are
not imported before a worker does. One for programs needs neither hostcore nor a Python that could run it.
"""

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Final

import attrs

from hostcore.job.sections import EnvironmentSpec
from hostcore.job.spec import JobSpec
from hostcore.plugins.extensions import load_extension
from hostcore.plugins.installed import Discovered, discover, distribution_on
from hostcore.plugins.published import how_to_install
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import ENVIRONMENTS_GROUP, KINDS

#: What a worker needs beside its plugins.
OWN: Final = ("hostcore", "hostcore-hookspecs", "hostcore-toolkit", "hostcore-builtin-plugins")
_OLDEST: Final = (3, 11)
_SECONDS: Final = 60.0
#: Runs in any Python 3, which may be too old. An empty place of the path is the working directory.
_QUESTION: Final = "import json, sys; print(json.dumps([sys.version_info[:3], [one for one in sys.path if one]]))"


class UnusableEnvironment(HostcoreError):
    """The environment of a job is not there, or what it is for cannot run in it."""

    code = "environment.unusable"


@attrs.frozen(kw_only=True)
class JobPython:
    """The Python of a job's environment."""

    #: Absolute.
    executable: str
    version: Sequence[int]
    #: Where it looks for modules.
    path: Sequence[str]

    @classmethod
    def of(cls, interpreter: str, environment: EnvironmentSpec, pointer: str) -> "JobPython":
        """Ask an interpreter, which has a minute to answer.

        :param interpreter: An absolute path.
        :param environment: What it is for.
        :param pointer: What of the job has led to it.
        :raises UnusableEnvironment: When it is no Python, or cannot run a worker that it is for.
        """
        version, path = _asked(interpreter, pointer)
        python = cls(executable=interpreter, version=version, path=path)
        if environment.used_by == "worker":
            python._require_a_worker(pointer)
        else:
            python._require_its_name(pointer)
        return python

    def _require_its_name(self, pointer: str) -> None:
        """See that ``python`` is this one, where its folder comes first on the PATH."""
        found = Path(self.executable).with_name("python")
        if not (found.exists() and found.samefile(self.executable)):
            raise UnusableEnvironment(
                f"{found} is not {self.executable}, so that programs would find another one as `python`",
                pointer=pointer,
                hint="name the python of a virtual environment; or remove the key, and name the Python in the command",
            )

    def _require_a_worker(self, pointer: str) -> None:
        """See that it is no older than the host needs, and has the host's own distributions in the host's versions."""
        if tuple(self.version) < _OLDEST:
            raise UnusableEnvironment(
                f"{self.executable} is Python {'.'.join(map(str, self.version))}",
                pointer=pointer,
                hint=f"workers need Python {'.'.join(map(str, _OLDEST))} or later; programs that they start may have "
                'an older one, in an environment with "used_by": "programs"',
            )
        wanted, there = _own_versions(None), _own_versions(self.path)
        wrong = [f"{name} {there.get(name, 'is missing')}" for name in OWN if there.get(name) != wanted.get(name)]
        if wrong:
            raise UnusableEnvironment(
                f"{self.executable} cannot run a worker of this host: {', '.join(wrong)}",
                pointer=pointer,
                hint=f"worker and supervisor have one version: {install_command(python=self.executable)}",
            )

    def with_its_plugins(self, here: Discovered) -> Discovered:
        """Return the installed plugins for a run whose workers run in this Python.

        :param here: What is installed where the host is.
        """
        there = discover(self.path)
        return attrs.evolve(
            here,
            refs=tuple(
                ref
                for found, room in ((there, "worker"), (here, "supervisor"))
                for ref in found.refs
                if KINDS[ref.kind].room == room
            ),
            broken=(*here.broken, *there.broken),
            worker_path=tuple(self.path),
        )


@attrs.frozen(kw_only=True)
class JobEnvironment:
    """Plugins of a job, and the Python of its workers."""

    #: What is installed: for the worker's room there, for the supervisor's here.
    discovered: Discovered
    #: The Python of the workers, absolute; empty: that of this process.
    python: str = ""
    #: The Python of the programs that the workers start, absolute; empty: none is known to be theirs.
    programs_python: str = ""
    #: What it was built from, a ``pylock.toml``; None if it was not built for the job.
    lock: str | None = None

    def python_of(self, kind: str) -> str:
        """The Python that plugins of a kind are imported in, absolute."""
        return self.python if self.python and KINDS[kind].room == "worker" else sys.executable


@attrs.frozen(kw_only=True)
class BuiltEnvironment:
    """An environment that was built for a job."""

    #: Its Python, absolute.
    python: str
    #: What is installed there beside the host's own distributions, as a ``pylock.toml`` (PEP 751).
    lock: str


class EnvironmentBuilder(ABC):
    """Builds environments. An entry point in the group ``hostcore.environments`` names a subclass."""

    @abstractmethod
    def build(
        self, environment: EnvironmentSpec, *, lock: str | None, job_dir: Path, tell: Callable[[str], object]
    ) -> BuiltEnvironment:
        """Build an environment, or find the one that was built before.

        In one for a worker, the host's own distributions (:data:`OWN`) are installed in the versions that run here. As
        long as this process lives, it is not removed.

        :param environment: With ``requirements`` or a ``lock``.
        :param lock: What an earlier attempt of the run has installed; None for a new run.
        :param job_dir: Where relative paths start.
        :param tell: Called with a line, every few seconds, while it takes longer. It raises an exception when the
            environment is not needed any more: let that through, and end what was started.
        :raises HostcoreError: When it cannot be built.
        """


def environment_of(
    spec: JobSpec, here: Discovered, *, lock: str | None, tell: Callable[[str], object]
) -> JobEnvironment:
    """The environment of a job: its own, which is built if that is needed, or that of this process.

    :param here: What is installed where the host is.
    :param lock: What an earlier attempt of the run has installed; None for a new run.
    :param tell: Called with a line, now and then, while it is built.
    :raises HostcoreError: When there is none, or it cannot be built.
    """
    if spec.environment is None:
        return JobEnvironment(discovered=here)
    python, built = job_python(spec.environment, here, lock=lock, job_dir=spec.job_dir, tell=tell)
    if spec.environment.used_by == "programs":
        return JobEnvironment(discovered=here, programs_python=python.executable, lock=built)
    return JobEnvironment(discovered=python.with_its_plugins(here), python=python.executable, lock=built)


def job_python(
    environment: EnvironmentSpec, here: Discovered, *, lock: str | None, job_dir: Path, tell: Callable[[str], object]
) -> "tuple[JobPython, str | None]":
    """The Python of a job's environment, which is built if that is needed, and the lock of what was built.

    :param here: What is installed where the host is.
    :param lock: See :meth:`EnvironmentBuilder.build`.
    :raises HostcoreError: When there is none, or it cannot be built.
    """
    if environment.interpreter is not None:
        return JobPython.of(environment.interpreter, environment, "/environment/interpreter"), None
    builders = here.extensions_of(ENVIRONMENTS_GROUP)
    if not builders:
        raise UnusableEnvironment(
            "no installed package builds environments",
            pointer="/environment",
            hint=f'{how_to_install("environment", "uv")}; or name the python of one that exists: "interpreter"',
        )
    registered = [one for found in builders.values() for one in found]
    builder = load_extension(registered, type)()
    if not isinstance(builder, EnvironmentBuilder):
        told = f"{registered[0].value} of {registered[0].dist} {registered[0].version} is no EnvironmentBuilder"
        raise UnusableEnvironment(told, pointer="/environment", hint=f"uninstall {registered[0].dist}")
    try:
        built = builder.build(environment, lock=lock, job_dir=job_dir, tell=tell)
    except OSError as error:
        told = f"{registered[0].dist} {registered[0].version} cannot build the environment: {error}"
        raise UnusableEnvironment(told, pointer="/environment") from error
    return JobPython.of(built.python, environment, "/environment"), built.lock


def _asked(interpreter: str, pointer: str) -> tuple[Sequence[int], list[str]]:
    """Its version, and where it looks for modules."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _QUESTION], capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        told = f"{interpreter} did not answer within {_SECONDS:g} seconds"
        raise UnusableEnvironment(told, pointer=pointer) from None
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise UnusableEnvironment(
            f"{interpreter} cannot be started: {told}", pointer=pointer, hint="name the python of an environment"
        ) from error
    try:
        version, path = json.loads(done.stdout)
        return [int(one) for one in version], [str(one) for one in path]
    except (ValueError, TypeError):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        said = f", and said: {lines[-1]}" if lines else ""
        raise UnusableEnvironment(
            f"{interpreter} is no Python 3: it exited with {done.returncode}{said}",
            pointer=pointer,
            hint="name the python of an environment, such as /srv/trainers/venv/bin/python",
        ) from None


def _own_versions(path: Sequence[str] | None) -> dict[str, str]:
    """Return the versions of the host's own distributions that are installed, by name."""
    found: dict[str, str] = {}
    for name in OWN:
        with suppress(PackageNotFoundError):
            found[name] = distribution_on(path, name).version
    return found
