"""What serves an attempt beside its workers: reporters and uploaders, from its first event to what is left at its end.

Nobody waits for them while the run trains. When it has ended, they have a while for what is left::

    samples and checkpoints are copied  ▸  the required ones decide  ▸  terminal event, result
                                        ▸  logs and result are copied, reporters hear the end  ▸  what is left is told
"""

import math
import time
from collections.abc import Callable
from typing import Final

import attrs

from hostcore.runs.result import NOT_DELIVERED, Left
from hostcore.supervisor.delivery.addressee import addressees_of
from hostcore.supervisor.delivery.deliveries import Deliveries, Undelivered
from hostcore.supervisor.ending import End
from hostcore.supervisor.opening import Opening
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.uploads.uploads import Backlog, Uploads, destinations_of, prefix_of
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.reporter import ReporterContext

_TICK_SECONDS: Final = 0.02


@attrs.frozen(kw_only=True)
class Patience:
    """How long an ended run waits for what gets nothing done, in seconds. What gets something done may go on."""

    #: For uploads, all of which are in an outage.
    uploads: float = 30.0
    #: For the required reporters, none of which takes an event.
    required: float = 60.0
    #: For the other reporters, none of which takes an event.
    reporters: float = 10.0
    #: For each of them, even if something gets done.
    at_most: float = math.inf


#: Where the next attempt goes on with what is left, or the disk does not let the run end well.
IMPATIENT: Final = Patience(uploads=2.0, required=2.0, reporters=2.0, at_most=5.0)
#: After so long a wait, people are told what for.
_SAY_SECONDS: Final = 3.0
#: Of the time that is left to a run that somebody wants ended, what the end itself and its news to the reporters get.
_RESERVE_SECONDS: Final = 5.0


class Serving:
    """The reporters and uploaders of one attempt.

    :param leave_by: Until when an ended run may wait, on the clock, if somebody is in a hurry; from when it began to.
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
        self._deliveries = Deliveries(addressees_of(plan.reporters, spec.reporters), opening.directory, clock=clock)
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
        #: The time that somebody in a hurry had left, once it was up.
        self._left_at: float | None = None
        self._news: list[events.Payload] = []
        self._reserve = min(_RESERVE_SECONDS, spec.grace_seconds / 5)

    def start(self, ctx: ReporterContext) -> None:
        """Start all of them. To be called before the attempt's first event is written."""
        self._deliveries.start(ctx)
        self._uploads.start()

    def hear(self, event: Event) -> None:
        """An event was written to the log. Never waits."""
        self._deliveries.announce()
        self._uploads.hear(event)

    def news(self) -> list[events.Payload]:
        """What the log should have of them, since the last call. Nothing any more behind the terminal event."""
        own, self._news = self._news, []
        return [*self._deliveries.news(), *self._uploads.news(), *own]

    def settle(self, patience: Patience) -> RunError | None:
        """The workers are gone: wait for the copies of what they left, and for the required reporters.

        :return: Why the run has failed, if something required was not delivered.
        """
        self._uploads.finish(final=False)
        most, reserve = patience.at_most, self._reserve
        self._waited_enough = not self._wait(
            self._uploads.is_drained,
            self._uploads.is_stuck,
            patience.uploads,
            at_most=most,
            reserve=reserve,
            say=self._what_is_uploaded,
        )
        self._deliveries.hurry()
        self._wait(self._deliveries.is_settled, self._takes_nothing(), patience.required, at_most=most, reserve=reserve)
        missing, behind = self._uploads.missing(), self._deliveries.behind()
        if not missing and not behind:
            return None
        return _not_delivered(missing, behind)

    def finish(self, patience: Patience) -> None:
        """The terminal event and the result are written: wait until everybody has them, or it makes no sense to."""
        self._uploads.finish(final=True)
        self._deliveries.finish()
        most, reserve = patience.at_most, self._reserve
        self._wait(
            self._deliveries.is_finished, self._takes_nothing(), patience.reporters, at_most=most, at_least=reserve
        )
        uploads = IMPATIENT.uploads if self._waited_enough else patience.uploads
        self._wait(self._uploads.is_drained, self._uploads.is_stuck, uploads, at_most=most)
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
        patience: float,
        *,
        at_most: float,
        reserve: float = 0.0,
        at_least: float = 0.0,
        say: Callable[[], str] | None = None,
    ) -> bool:
        """Wait until something is done; not for longer than it is stuck, nor than whoever is in a hurry allows.

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
            if now - began >= at_most or (stuck_since and now - stuck_since >= patience):
                return False
            time.sleep(_TICK_SECONDS)
        return True


def _untold(one: Undelivered) -> Left:
    if not one.events:
        return Left(message=f"the reporter {one.label} failed when it was closed: {one.message}")
    return Left(
        message=f"the reporter {one.label} has not taken {one.events:,} events: {one.message}",
        command=["hostcore", "replay", "--reporter", one.name, "--pending"],
    )


def _not_copied(name: str, backlog: Backlog) -> str:
    why = {**backlog.failing, **backlog.given_up}
    path = next(iter(why), None)
    more = f" and {len(why) - 1:,} more" if len(why) > 1 else ""
    if backlog.unusable:
        told = f": {backlog.unusable}"
    elif path is not None:
        told = f": {path}{more} ({why[path]})"
    else:
        told = f": {backlog.files:,} files are left" if backlog.files else ""
    return f"the uploader {name} has not copied everything{told}"


def _not_delivered(uploaders: list[str], reporters: list[str]) -> RunError:
    parts = [f"the uploader {label} has not copied everything" for label in uploaders]
    parts += [f"the reporter {label} has not taken every event" for label in reporters]
    ways = ["`hostcore upload RUN`"] * bool(uploaders) + ["`hostcore replay RUN --reporter NAME --pending`"] * bool(
        reporters
    )
    return RunError(
        type=NOT_DELIVERED,
        message=f"the run itself has come to its end, but, required by the job, {'; '.join(parts)}",
        hint=f"nothing of the run is lost: {' and '.join(ways)} delivers the rest; the events above say what was wrong",
    )


def fails_for(payload: End, error: RunError | None) -> End:
    """How an attempt ends when something required was not delivered: a success becomes a failure."""
    if error is None or not isinstance(payload, events.RunSucceeded):
        return payload
    return events.RunFailed(error=error)
