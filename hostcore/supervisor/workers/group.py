"""The workers of a run, one for each rank: heard all at once, told and ended together."""

import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.writer import now_ms
from hostcore.runs.channel import Channel
from hostcore.supervisor.workers.spawn import Spawn, Worker, WorkerExit

#: A worker that has closed its line is about to end.
_EXIT_POLL_SECONDS: Final = 0.01


@attrs.define(kw_only=True, eq=False)
class Member:
    """A rank's worker, and what is known of it."""

    rank: int
    worker: Worker
    #: What it found out about the job, once it is ready.
    summary: Mapping[str, Any] | None = None
    #: How it ended; None while it runs.
    exit: WorkerExit | None = None
    #: When its line or its process was found to have ended, in milliseconds since 1970.
    ended_ms: int | None = None
    #: Whether it was ended from here, and did not die by itself.
    was_killed: bool = False


class WorkerGroup:
    """All workers of an attempt, by rank.

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
            member = Member(rank=rank, worker=spawn(rank, contract, output))
            self.members.append(member)
            self._selector.register(member.worker.channel, selectors.EVENT_READ, member)

    def wake_for(self, other: Channel) -> None:
        """Have :meth:`listen` return as well when something else can be read."""
        self._selector.register(other, selectors.EVENT_READ, None)

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return all(member.exit is not None for member in self.members)

    def listen(self, seconds: float) -> Iterator[tuple[Member, str, Any]]:
        """What they say, once one of them says something or ends; nothing if none does in time.

        :return: Who says it, kind and content.
        """
        leaving = any(member.exit is None and member.ended_ms for member in self.members)
        for key, _ in self._selector.select(_EXIT_POLL_SECONDS if leaving else seconds):
            yield from self._hear(key.data) if key.data else ()
        for member in self.members:
            if member.exit is None and (exit_ := member.worker.poll()) is not None:
                # What it said right before; what it started may still hold its end of the line.
                yield from self._hear(member)
                self._hang_up(member)
                member.exit = exit_

    def _hear(self, member: Member) -> Iterator[tuple[Member, str, Any]]:
        try:
            while True:
                yield member, *member.worker.channel.receive(0)
        except TimeoutError:
            return
        except EOFError:
            self._hang_up(member)

    def _hang_up(self, member: Member) -> None:
        member.ended_ms = member.ended_ms or self._clock_ms()
        with suppress(KeyError):  # it has hung up before
            self._selector.unregister(member.worker.channel)

    def send(self, kind: str, content: Any) -> None:
        """Say something to all."""
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
