"""Commands that an engine has started, one process for each rank: rank 0 runs the run, the others serve it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hostcore.cli.output import tell_aside
from hostcore.cli.stopping import leave
from hostcore.runs.directory import runs_dir
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.ranks.engine import Engine
from hostcore.supervisor.ranks.rendezvous import Rendezvous


@contextmanager
def ranks_of_engine(
    interrupts: Interrupts, *, runs: Path | None = None, in_process: bool = False, detach: bool = False
) -> Iterator[Rendezvous | None]:
    """The ranks that an engine has started; None if none has, and this process is the only one.

    In a rank other than 0 it does not come back: the process serves rank 0 to the end of the run, and exits as it does.

    :param interrupts: Entered.
    :param runs: The folder of all runs; None for the usual one.
    :param in_process: Whether ``--in-process`` is asked for, which ranks cannot do; ``detach`` likewise.
    :raises HostcoreError: When the environment is not one of ranks, or rank 0 is not found.
    """
    engine = Engine.of(os.environ)
    if engine is None:
        yield None
        return
    for option, asked in (("--in-process", in_process), ("--detach", detach)):
        if asked:
            started = f"RANK and WORLD_SIZE say that this is one of {engine.world_size} ranks that were started already"
            raise click.UsageError(f"{option} is for a single process; {started}")
    runs = runs or runs_dir()
    if engine.rank:
        from hostcore.supervisor.ranks.rank_agent import run_rank_agent

        leave(interrupts, run_rank_agent(engine, runs, interrupts, tell_aside))
    with Rendezvous(engine, runs, interrupts) as rendezvous:
        yield rendezvous
