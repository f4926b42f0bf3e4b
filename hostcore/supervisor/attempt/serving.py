"""What serves an attempt beside its workers: reporters and uploaders, from its first event to what is left at its end.

The workers never wait for them. When the run has ended, they have a limited time for what is left::

    samples and checkpoints are copied  ▸  the required ones decide  ▸  terminal event, result
                                        ▸  logs and result are copied, reporters hear the end  ▸  what is left is told
"""

import math
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from hostcore.events.merger import LogLine
from hostcore.runs.result import NOT_DELIVERED, Left
from hostcore.supervisor.attempt.ending import End
from hostcore.supervisor.delivery.backlog import Backlog
from hostcore.supervisor.delivery.reporters import Reporters, Undelivered, pending
from hostcore.supervisor.delivery.subscription import destinations_of, prefix_of, subscriptions_of
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore.supervisor.opening import Opening
from hostcore.supervisor.plan import RunPlan
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.reporter import ReporterContext

_TICK_SECONDS: Final = 0.02


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long an ended run waits for uploads and reporters that make no progress, in seconds."""

    #: For all of them together, from the end of the training on, while nothing that is required is left.
    idle: float = 10.0
    #: For the required uploads, all of which are in an outage.
    uploads: float = 30.0
    #: For the required reporters, none of which takes an event.
    required: float = 60.0
    #: For each of them, even if something gets done.
    at_most: float = math.inf


#: Where the next attempt goes on with what is left, or the disk does not let the run end well.
SHORT_TIMEOUTS: Final = Timeouts(idle=2.0, uploads=2.0, required=2.0, at_most=5.0)
#: The part of the idle time that is left for the end itself and its events.
_OF_THE_END: Final = 0.4
#: After so long a wait, people are told what for.
_SAY_SECONDS: Final = 3.0
#: Of the time that is left to a run that was asked to end, what the end itself and its events to the reporters get.
_RESERVE_SECONDS: Final = 5.0


class Serving:
    """The reporters and uploaders of one attempt.

    :param leave_by: Until when an ended run may wait, on the clock, if a request limits it; from when it began to.
    :param meanwhile: Called again and again while it waits.
    """

    def __init__(
        self,
        plan: RunPlan,
        opening: Opening,
        *,
        leave_by: Callable[[float], float | None],
        meanwhile: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        spec = plan.spec
        self._leave_by = leave_by
        self._meanwhile = meanwhile
        self._clock = clock
        self._deliveries = Reporters(subscriptions_of(plan.reporters, spec.reporters), opening.directory, clock=clock)
        self._uploads = Uploads(
            destinations_of(plan.uploaders, spec.uploaders, base_uri=spec.checkpoint_base_uri),
            opening.directory,
            attempt=opening.attempt,
            job=plan.job,
            base_uri=spec.checkpoint_base_uri,
            prefix=prefix_of(spec.run_id, spec.trainer),
            spool_bytes=spec.spool_bytes,
            spool_seconds=spec.spool_seconds,
            checkpoints_dir=plan.checkpoints_dir,
            samples_dir=plan.samples_dir,
            clock=clock,
        )
        #: Whether an outage was waited for already.
        self._waited_enough = False
        self._run_id = spec.run_id
        #: The time that the stop request had left, once it was up.
        self._left_at: float | None = None
        self._news: list[events.Payload] = []
        self._reserve = min(_RESERVE_SECONDS, spec.grace_seconds / 5)

    def start(self, ctx: ReporterContext) -> None:
        """Start all of them. To be called before the attempt's first event is written."""
        self._deliveries.start(ctx)
        self._uploads.start()

    def hear(self, lines: Sequence[LogLine]) -> None:
        """Events were written to the log. Never waits."""
        self._deliveries.announce(lines)
        for line in lines:
            assert line.event is not None
            self._uploads.hear(line.event)

    def news(self) -> list[events.Payload]:
        """What the log should have of them, since the last call. Nothing any more behind the terminal event."""
        own, self._news = self._news, []
        return [*self._deliveries.news(), *self._uploads.news(), *own]

    def settle(self, timeouts: Timeouts) -> RunError | None:
        """The workers are gone: wait for the copies of what they left, and for the required reporters.

        :return: Why the run has failed, if something required was not delivered.
        """
        self._uploads.finish(final=False)
        most, reserve = timeouts.at_most, self._reserve
        self._waited_enough = not self._wait(
            self._uploads.is_drained,
            self._uploads.is_stuck,
            lambda: timeouts.uploads if self._uploads.missing() else timeouts.idle * (1 - _OF_THE_END),
            at_most=most,
            reserve=reserve,
            say=self._what_is_uploaded,
        )
        self._deliveries.hurry()
        self._wait(
            self._deliveries.is_settled,
            self._takes_nothing(),
            lambda: timeouts.required,
            at_most=most,
            reserve=reserve,
        )
        missing = [*self._uploads.missing(), *self._deliveries.missing()]
        return _not_delivered(self._run_id, missing, self.left) if missing else None

    def finish(self, timeouts: Timeouts) -> None:
        """The terminal event and the result are written: wait until all have them, or nobody gets on."""
        self._uploads.finish(final=True)
        self._deliveries.finish()
        takes_nothing, idle = self._takes_nothing(), timeouts.idle * (_OF_THE_END if self._waited_enough else 1)
        self._wait(
            lambda: self._deliveries.is_finished() and self._uploads.is_drained(),
            lambda: takes_nothing() and (self._uploads.is_drained() or self._uploads.is_stuck()),
            lambda: idle,
            at_most=timeouts.at_most,
            at_least=self._reserve,
        )
        self.abandon()

    def abandon(self) -> None:
        """Stop. The next attempt, ``hostcore replay`` and ``hostcore upload`` go on with what is left."""
        self._deliveries.abandon()
        self._uploads.abandon()

    @property
    def left(self) -> list[Left]:
        """What was not delivered."""
        told = [_untold(one) for one in self._deliveries.failures]
        for name, one in self._uploads.pending().by_uploader.items():
            if not one.is_complete or not self._uploads.has_begun:
                told.append(Left(message=_not_copied(name, one), command=["hostcore", "upload", "--uploader", name]))
        return told

    def _what_is_uploaded(self) -> str:
        left = self._uploads.pending()
        size = f"{left.files:,} files, {left.bytes / 1e6:,.1f} MB"
        return f"the training is over; what is left is uploaded: {size} (Ctrl-C leaves it to `hostcore upload`)"

    def _takes_nothing(self) -> Callable[[], bool]:
        """Whether no reporter has taken an event since the last time it was asked."""
        before = -1

        def asked() -> bool:
            nonlocal before
            before, last = self._deliveries.taken, before
            return before == last

        return asked

    def _wait(
        self,
        done: Callable[[], bool],
        is_stuck: Callable[[], bool],
        timeout: Callable[[], float],
        *,
        at_most: float,
        reserve: float = 0.0,
        at_least: float = 0.0,
        say: Callable[[], str] | None = None,
    ) -> bool:
        """Wait until something is done; not for longer than it makes progress, nor than a stop request allows.

        :param reserve: Seconds of what they allow that are left for others.
        :param at_least: Seconds that it may take even if that time is up, unless it is to end at once.
        :param say: What is waited for: noted in the log if it takes a while.
        :return: Whether it is done.
        """
        began, stuck_since = self._clock(), None
        while not done():
            self._meanwhile()
            now = self._clock()
            leave_by = self._leave_by(began)
            if leave_by is not None:
                leave_by = min(leave_by, math.inf if self._left_at is None else self._left_at)
                if leave_by == -math.inf or now >= max(leave_by - reserve, began + at_least):
                    self._left_at = leave_by
                    return False
            if say is not None and now - began >= _SAY_SECONDS:
                self._news.append(events.Warning(code="run.waiting", message=say()))
                say = None
            stuck_since = (stuck_since or now) if is_stuck() else None
            if now - began >= at_most or (stuck_since and now - stuck_since >= timeout()):
                return False
            time.sleep(_TICK_SECONDS)
        return True


def never_told(plan: RunPlan) -> list[Left]:
    """What the reporters of a run that is finished were never told, for it was not there to be told."""
    return [_untold(one) for one in pending(subscriptions_of(plan.reporters, plan.spec.reporters), plan.directory)]


def _untold(one: Undelivered) -> Left:
    if not one.events:
        return Left(message=f"the reporter {one.label} failed: {one.message}")
    return Left(
        message=f"the reporter {one.label} has not taken {one.events:,} events: {one.message}",
        command=["hostcore", "replay", "--reporter", one.name, "--pending"],
    )


def _not_copied(name: str, backlog: Backlog) -> str:
    why = {**backlog.failing, **backlog.given_up}
    paths = dict.fromkeys([*backlog.left, *backlog.given_up])
    first = next((path for path in why if path.startswith("checkpoints/")), next(iter(why), None))
    told = f": {len(paths):,} are left" if paths else ""
    if backlog.unusable:
        told += f": {backlog.unusable}"
    elif first is not None:
        told += f", such as {first} ({why[first]})"
    return f"the uploader {name} has not copied everything{told}"


def _not_delivered(run_id: str, missing: Sequence[str], left: Sequence[Left]) -> RunError:
    """Why a run has failed that itself has come to its end.

    :param missing: The labels of what the job requires and that has not everything.
    :param left: What to report of each that has not received everything.
    """
    causes = f": {'; '.join(one.message for one in left)}" if left else ""
    who = ", ".join(missing)
    ways = [shlex.join([*one.command[:2], run_id, *one.command[2:]]) for one in left if one.command]
    return RunError(
        type=NOT_DELIVERED,
        message=f"the training has come to its end, but {who}, which the job requires, has not everything{causes}",
        hint="nothing of the run is lost; the rest is delivered by: " + "; ".join(ways) if ways else None,
    )


def fails_for(payload: End, error: RunError | None) -> End:
    """How an attempt ends when something required was not delivered: a success becomes a failure."""
    if error is None or not isinstance(payload, events.RunSucceeded):
        return payload
    return events.RunFailed(error=error)
