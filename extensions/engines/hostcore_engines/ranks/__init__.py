"""Ranks that an engine has started, torchrun for instance: one supervisor each, which meet at rank 0.

In: the variables of the engine (``hostcore.supervisor.engine.Engine``). Out: the workers of all ranks, to rank 0's
supervisor; its exit code, to the engine, on all ranks.

``rendezvous`` is rank 0's side and describes the conversation, ``rank_agent`` the other; ``rank_files`` are logs of
machines that do not share the folder of the runs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from hostcore.supervisor.engine import Engine
from hostcore.supervisor.engine_ranks import EngineRanks, OtherRanks
from hostcore.supervisor.interrupts import Interrupts


class _MeetingRanks(EngineRanks):
    """Ranks that meet over TCP; see :mod:`hostcore_engines.ranks.rendezvous`."""

    def lead(self, engine: Engine, runs: Path, interrupts: Interrupts) -> AbstractContextManager[OtherRanks]:
        from hostcore_engines.ranks.rendezvous import Rendezvous

        return Rendezvous(engine, runs, interrupts)

    def serve(self, engine: Engine, runs: Path, interrupts: Interrupts, tell: Callable[[str], object]) -> int:
        from hostcore_engines.ranks.rank_agent import run_rank_agent

        return run_rank_agent(engine, runs, interrupts, tell)


#: What the entry point names.
RANKS: Final = _MeetingRanks()
