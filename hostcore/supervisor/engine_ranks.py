"""The seam to the extension that brings ranks of an engine together, such as torchrun's: ``hostcore-engines``.

Every rank's process runs ``hostcore run``. That of rank 0 supervises the run; to its supervisor, the worker of another
rank is a worker like any other. The processes of the other ranks serve it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from hostcore.job.spec import JobSpec
from hostcore.plugins.extensions import load_extension
from hostcore.plugins.installed import Discovered
from hostcore.plugins.published import how_to_install
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.workers.spawn import Worker
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import RANKS_GROUP


class NoEngineRanks(HostcoreError):
    """An engine has started several ranks, and no installed package brings them together."""

    code = "ranks.extension"


class OtherRanks(Protocol):
    """The other ranks, as rank 0 sees them."""

    engine: Engine

    def gather(self) -> None:
        """Wait for all of them, or until the run is asked to stop.

        :raises HostcoreError: When a rank is missing after some minutes.
        """

    def require_storage(self, spec: JobSpec) -> None:
        """Require a place for checkpoints that outlives this machine, if only this machine sees the run directory.

        :raises HostcoreError: When the job has none.
        """

    def spawn(self, rank: int, contract: Path, output: Path) -> Worker:
        """Start the worker of a rank; see :class:`hostcore.supervisor.workers.spawn.Spawn`."""


class EngineRanks(ABC):
    """Brings the ranks of an engine together. An entry point in ``hostcore.ranks`` names an instance."""

    @abstractmethod
    def lead(self, engine: Engine, runs: Path, interrupts: Interrupts) -> AbstractContextManager[OtherRanks]:
        """Admit the other ranks, in the process of rank 0. At its end, the context ends their processes.

        :param runs: The folder of all runs.
        :param interrupts: Gets the stop requests of all ranks.
        """

    @abstractmethod
    def serve(self, engine: Engine, runs: Path, interrupts: Interrupts, tell: Callable[[str], object]) -> int:
        """Serve rank 0 to the end of the run, in the process of another rank.

        :param tell: Called with lines for people, about downloads for instance.
        :return: The exit code of rank 0.
        :raises HostcoreError: When rank 0 is not found, or breaks off.
        """


def installed_engine_ranks(here: Discovered) -> EngineRanks:
    """Return the implementation that is installed.

    :param here: What is installed where the host is.
    :raises NoEngineRanks: When there is none.
    :raises BrokenExtension: When it cannot be used, or there are several.
    """
    found = [one for registered in here.extensions_of(RANKS_GROUP).values() for one in registered]
    if not found:
        raise NoEngineRanks(
            "RANK and WORLD_SIZE say that an engine has started several ranks, and no installed package brings them "
            "together",
            hint=f"{how_to_install('ranks', 'engine')}; or unset RANK and WORLD_SIZE to run without an engine",
        )
    return load_extension(found, EngineRanks)  # type: ignore[type-abstract]
