"""A session with the workers of a job, one for each rank: start, "go", messages, exit.

A run, a check of a job, an evaluation and the agent of a rank on another machine hold one each::

    start ─▶ "invalid"
         └─▶ "ready" from all: ``summaries``          a check ends here
                 └─▶ send("go") ─▶ "evaluated", or "failed"      an evaluation ends here
                               └─▶ the ranks' logs; "failed" where a log cannot take it      a run

In: a :class:`~hostcore.supervisor.workers.spawn.Spawn`, and for each rank a contract file and a file for its output;
later messages, ``kill`` and ``abort``. Out: the messages of each worker (see :mod:`hostcore.runs.channel`), its
findings about the job (``Member.summary``), and its exit (``Member.exit``). After ``close`` no worker lives, nor
any process of its group.
"""

import selectors
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.writer import now_ms
from hostcore.runs.channel import Channel
from hostcore.runs.contract import WorkerContract
from hostcore.runs.record import RunRecord
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.spawn import Spawn, Worker, WorkerExit

#: How long to wait for a worker's next message before looking around. An end is noticed at once.
TICK_SECONDS: Final = 0.1
#: A worker that has closed its line is about to end.
_EXIT_POLL_SECONDS: Final = 0.01
_OUTPUT_LINES: Final = 40
_OUTPUT_BYTES: Final = 64 * 1024


@attrs.define(kw_only=True, eq=False)
class Member:
    """A rank's worker, and what is known of it."""

    rank: int
    #: How messages call it.
    name: str = "the worker"
    worker: Worker
    #: The file of its standard output and standard error.
    output: Path
    #: What it found out about the job, once it is ready.
    summary: Mapping[str, Any] | None = None
    #: How it ended; None while it runs.
    exit: WorkerExit | None = None
    #: When its line or its process was found to have ended, in milliseconds since 1970.
    ended_ms: int | None = None
    #: Whether it was ended from here, and did not die by itself.
    was_killed: bool = False

    def tail(self) -> str:
        """Return the last lines of its output, and all of Python's report of a crash; empty if there is none."""
        try:
            with self.output.open("rb") as file:
                file.seek(max(0, self.output.stat().st_size - _OUTPUT_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        fatal = (number for number, line in enumerate(lines) if line.startswith("Fatal Python error"))
        return "\n".join(lines[min(next(fatal, len(lines)), max(0, len(lines) - _OUTPUT_LINES)) :])


class WorkerSession:
    """All workers of an attempt, a check or an evaluation, by rank.

    :param clock_ms: The wall clock, in milliseconds since 1970.
    """

    def __init__(self, *, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self._selector = selectors.DefaultSelector()
        self.members: list[Member] = []

    def start(self, spawn: Spawn, files: Sequence[tuple[Path, Path]]) -> None:
        """Start the workers.

        :param files: The contract file and the output file of each rank.
        """
        for rank, (contract, output) in enumerate(files):
            name = "the worker" if len(files) == 1 else f"the worker of rank {rank}"
            member = Member(rank=rank, name=name, worker=spawn(rank, contract, output), output=output)
            self.members.append(member)
            self._selector.register(member.worker.channel, selectors.EVENT_READ, member)

    def wake_for(self, other: Channel) -> None:
        """Have :meth:`listen` return as well when something else can be read."""
        self._selector.register(other, selectors.EVENT_READ, None)

    @property
    def is_over(self) -> bool:
        """True if all have ended."""
        return all(member.exit is not None for member in self.members)

    @property
    def summaries(self) -> list[Mapping[str, Any]]:
        """Findings of each rank about the job; empty until all are ready."""
        found = [member.summary for member in self.members if member.summary is not None]
        return found if len(found) == len(self.members) else []

    def listen(self, seconds: float = TICK_SECONDS) -> Iterator[tuple[Member, str, Any]]:
        """Yield the workers' messages, once one of them sends a message or ends; nothing if none does in time.

        :return: Sender, kind and content.
        """
        leaving = any(member.exit is None and member.ended_ms for member in self.members)
        for key, _ in self._selector.select(_EXIT_POLL_SECONDS if leaving else seconds):
            yield from self._hear(key.data) if key.data else ()
        for member in self.members:
            if member.exit is None and (exit_ := member.worker.poll()) is not None:
                # Its last messages; a process that it started may still hold its end of the line.
                yield from self._hear(member)
                self._hang_up(member)
                member.exit = exit_

    def _hear(self, member: Member) -> Iterator[tuple[Member, str, Any]]:
        try:
            while True:
                kind, content = member.worker.channel.receive(0)
                if kind == "ready":
                    member.summary = content
                yield member, kind, content
        except TimeoutError:
            return
        except EOFError:
            self._hang_up(member)

    def _hang_up(self, member: Member) -> None:
        member.ended_ms = member.ended_ms or self._clock_ms()
        with suppress(KeyError):  # it has hung up before
            self._selector.unregister(member.worker.channel)

    def send(self, kind: str, content: Any) -> None:
        """Send a message to all."""
        for member in self.members:
            member.worker.channel.send(kind, content)

    def kill(self) -> None:
        """End all, with what they have started."""
        self._end(lambda worker: worker.kill())

    def abort(self) -> None:
        """Let all write the tracebacks of their threads into their output, and die of that."""
        self._end(lambda worker: worker.abort())

    def _end(self, how: Callable[[Worker], None]) -> None:
        for member in self.members:
            if member.exit is None and member.worker.poll() is None:
                member.was_killed = True
                how(member.worker)

    def end(self) -> None:
        """Kill all, with what they have started, and wait until they are gone."""
        for member in self.members:  # also those that have ended: what they started may live
            member.worker.kill()
        for member in self.members:
            member.exit = member.worker.wait()

    def close(self) -> None:
        """End them, and close the lines."""
        self.end()
        for member in self.members:
            member.worker.close()
        self._selector.close()


@contextmanager
def session_without_run(
    plan: RunPlan, job: Mapping[str, Any], spawn: Spawn, *, ranks: int = 1, **contract: Any
) -> Iterator[WorkerSession]:
    """Start workers that belong to no run. What they write lies in a temporary folder; all of it is gone afterwards.

    :param job: The plan's job, as they are to see it.
    :param contract: Fields of their :class:`~hostcore.runs.contract.WorkerContract` beside its paths.
    """
    with tempfile.TemporaryDirectory(prefix="hostcore-worker-") as folder:
        place = Path(folder)
        record, file = place / "run.json", place / "contract.json"
        RunRecord(job=job, job_dir=str(plan.spec.job_dir), refs=plan.refs).write(record)
        WorkerContract(
            trainer_plugin=plan.spec.trainer,
            job_spec_path=str(record),
            checkpoints_dir=str(place / "checkpoints"),
            samples_dir=str(place / "samples"),
            events_path=str(place / "events.jsonl"),
            run_dir=folder,
            inputs=plan.inputs,
            python=plan.python,
            programs_python=plan.programs_python,
            **contract,
        ).write(file)
        session = WorkerSession()
        try:
            session.start(spawn, [(file, place / f"rank-{rank}.log") for rank in range(ranks)])
            yield session
        finally:
            session.close()  # all their messages have come; a thread that a plugin started could keep them
