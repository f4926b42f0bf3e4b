"""Delivery by hand, after a run has ended: its log to a reporter, or to its uploaders what they have not copied.

``hostcore replay`` and ``hostcore upload`` load the components that the recorded job names, with the settings that they
have there, and serve them as an attempt does.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs

from hostcore.errors import all_errors, for_each
from hostcore.job.document import Document, blame
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.attribution import traceback_from
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import Selected, check_distribution, resolve
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.contract import artifact_folders
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore.supervisor.delivery.backlog import Backlogs
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile, LogView
from hostcore.supervisor.delivery.events_source import EventLimits, EventSource
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.subscriber import Subscriber
from hostcore.supervisor.delivery.subscription import (
    FSSPEC,
    Destination,
    ReporterSubscription,
    destinations_of,
    mirroring,
    subscriptions_of,
    unique_names,
    upload_context,
)
from hostcore.supervisor.delivery.units import Inventory
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.reporter import ReporterContext

#: The time that a reporter may fail without a break before it is given up.
GIVE_UP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1


class NoUploader(HostcoreError):
    """The run has no uploader."""

    code = "uploads.none"


@attrs.frozen(kw_only=True)
class ChosenReporter:
    """The reporter of a replay."""

    subscription: ReporterSubscription
    #: True if it is one of the run's own.
    is_own: bool
    #: True if it has the settings of the run, too, so that its cursor counts for it.
    is_same: bool
    #: The job as recorded.
    spec: JobSpec


@attrs.frozen(kw_only=True)
class ChosenUploaders:
    """The uploaders that are to copy a run."""

    destinations: Sequence[Destination]
    #: Keys of the run's own that are not among them.
    owed: Sequence[str]
    base_uri: str | None
    #: The job as recorded.
    spec: JobSpec


# -- which ones --------------------------------------------------------------------------------------------------------


def choose_reporter(directory: RunDirectory, name: str, settings: Sequence[str] = ()) -> ChosenReporter:
    """Load a reporter.

    :param name: One of the run's own, by its name or that of its cursor, with the settings it has there; or any other.
    :param settings: ``key=value``, applied last.
    :raises HostcoreError: When there is no such reporter, or its settings are wrong.
    """
    spec = RunRecord.read(directory.record).spec(with_data=True)
    discovered = discover()
    names = unique_names([use.use.rpartition("/")[2] for use in spec.reporters])
    position = _position(spec, names, name, discovered)
    own = None if position is None else spec.reporters[position]
    at = "" if position is None else f"/reporters/{position}"
    use = own or DeliveryUse(use=name)
    chosen = Document(use.settings)
    for override in settings:
        chosen = chosen.with_override(override)
    ref = _resolved(use.use, "reporter", discovered, at)
    try:
        component = _loaded(ref, chosen.job, at, spec.job_dir if own else Path.cwd(), directory)
    except HostcoreError as error:
        blame(all_errors(error), chosen.origins, at=at)
        for one in all_errors(error):
            one.file = one.file or (str(directory.record) if own else None)
        raise
    (subscription,) = subscriptions_of([component], [use])
    if position is not None:
        subscription = attrs.evolve(subscription, name=names[position])
    is_own = own is not None
    return ChosenReporter(subscription=subscription, is_own=is_own, is_same=is_own and not settings, spec=spec)


def _position(spec: JobSpec, names: Sequence[str], name: str, discovered: Discovered) -> int | None:
    """Which of the run's own reporters is meant; None if none."""
    if name in names:
        return names.index(name)
    try:
        meant = resolve(name, "reporter", discovered)
    except HostcoreError:
        return None  # reported by the caller
    return next((at for at, use in enumerate(spec.reporters) if _is(use, meant, discovered)), None)


def _is(use: DeliveryUse, meant: PluginRef, discovered: Discovered) -> bool:
    try:
        return resolve(use.use, "reporter", discovered) == meant
    except HostcoreError:  # it is not installed any more
        return False


def choose_uploaders(directory: RunDirectory, names: Sequence[str] = (), *, to: str | None = None) -> ChosenUploaders:
    """Load the uploaders of a run, or the one that copies it to a URI.

    :param names: Those of the run's own that are wanted: as the job names them, or as the ledger does; all, if none.
    :param to: A URI in place of them.
    :raises HostcoreError: When the run has none, or none of such a name, or one cannot be loaded.
    """
    try:
        spec = RunRecord.read(directory.record).spec(with_data=True)
        base_uri = spec.checkpoint_base_uri
        own = _uploaders(mirroring(spec.uploaders, base_uri), spec.job_dir, directory, base_uri=base_uri)
    except HostcoreError as error:
        if to is None:
            for one in all_errors(error):
                one.file = one.file or str(directory.record)
            raise
        # Ignore load errors of the run's other uploaders.
        spec, own = RunRecord.read(directory.record).spec(with_data=True), []
    if to is not None:
        base_uri = to
        destinations = _uploaders([DeliveryUse(use=FSSPEC)], spec.job_dir, directory, base_uri=to)
    else:
        destinations = _wanted(directory, own, names)
    served = {one.key for one in destinations}
    owed = [one.key for one in own if one.key not in served]
    return ChosenUploaders(destinations=destinations, owed=owed, base_uri=base_uri, spec=spec)


def _wanted(directory: RunDirectory, own: Sequence[Destination], names: Sequence[str]) -> list[Destination]:
    if not own:
        raise NoUploader(
            f"the job of {directory.run_id} has no uploaders",
            file=str(directory.record),
            hint="say where to: hostcore upload RUN --to URI, such as s3://bucket/runs or a folder",
        )
    known = [one.name for one in own]
    wanted = {name: name.rpartition("/")[2] for name in names}
    for name, short in wanted.items():
        if short not in known:
            hint = f"it has: {', '.join(known)}"
            raise NoUploader(f"{directory.run_id} has no uploader {name!r}", file="--uploader", hint=hint)
    return [one for one in own if not names or one.name in wanted.values()]


def _uploaders(
    uses: Sequence[DeliveryUse], job_dir: Path, directory: RunDirectory, *, base_uri: str | None
) -> list[Destination]:
    discovered = discover()

    def loaded(position: int) -> Component:
        use, at = uses[position], f"/uploaders/{position}"
        return _loaded(_resolved(use.use, "uploader", discovered, at), use.settings, at, job_dir, directory)

    return destinations_of(for_each(range(len(uses)), loaded), uses, base_uri=base_uri)


def _resolved(name: str, kind: str, discovered: Discovered, at: str) -> PluginRef:
    ref = resolve(name, kind, discovered, pointer=at or None)
    check_distribution(ref, pointer=at)
    return ref


def _loaded(ref: PluginRef, settings: Mapping[str, Any], at: str, job_dir: Path, directory: RunDirectory) -> Component:
    selected = Selected(ref=ref, settings=settings, pointer=at)
    return load_component(selected, job_dir=job_dir, import_paths=True, run_dir=directory.path)


# -- events ------------------------------------------------------------------------------------------------------------


class Replay:
    """Delivers the log as it is now to a reporter.

    :param pending: Only what is behind the cursor that the reporter has in this run.
    :param show: Takes lines for people meanwhile.
    """

    def __init__(
        self,
        directory: RunDirectory,
        chosen: ChosenReporter,
        *,
        pending: bool,
        show: Callable[[str], object],
        limits: EventLimits | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        log = LogView(directory.events)
        subscription = chosen.subscription
        #: True if the reporter shows something of its own on the terminal.
        self.live_only = subscription.live_only
        self._show_line = show
        self._give_up_seconds = give_up_seconds
        self._file = CursorFile(directory.cursors / f"{subscription.name}.json", identity=subscription.identity)
        self._before, problem = self._file.read(log) if chosen.is_own else (Cursor(), None)
        if pending and problem:
            show(f"its cursor is of no use: {problem}; it is told everything")
        self._keeps_cursor = chosen.is_same or (chosen.is_own and pending)
        begin = self._before if pending else Cursor()
        last_seq = log.last_seq()
        #: The number of events to deliver.
        self.events = last_seq - begin.seq
        self._context = ReporterContext(
            run_id=directory.run_id,
            attempt=newest_attempt(directory.attempts),
            job=job_view(chosen.spec),
            run_dir=str(directory.path),
            last_seq=last_seq,
        )
        limits = limits or EventLimits()
        self._source = EventSource(
            subscription, log, file=None, begin=begin, last_seq=last_seq, limits=limits, emit=self._show
        )
        self._subscriber = Subscriber(self._source)

    def run(self, progress: Callable[[int], object]) -> None:
        """Deliver everything.

        :param progress: Called now and then with the number of events taken so far.
        """
        source, subscriber = self._source, self._subscriber
        subscriber.start(source.context(self._context))
        subscriber.hurry(last=True)
        try:
            while not subscriber.is_over:
                subscriber.join(_POLL_SECONDS)
                subscriber.poll()
                progress(source.count)
                if subscriber.is_left_hanging or subscriber.outage_seconds > self._give_up_seconds:
                    subscriber.abandon()
                    subscriber.join(1.0)
                    break
        finally:
            subscriber.abandon()
            if self._keeps_cursor and source.cursor.offset > self._before.offset:
                self._file.path.parent.mkdir(exist_ok=True)
                self._file.write(source.cursor)
        progress(source.count)

    @property
    def count(self) -> int:
        """Events that were taken."""
        return self._source.count

    @property
    def problem(self) -> str | None:
        """The failure that has ended it, in one line; None if everything was delivered."""
        return self._source.problem

    @property
    def traceback(self) -> str:
        """The reporter's own traceback of it; empty if there is none."""
        error = self._source.error
        return traceback_from(error, _is_the_reporters) if error else ""

    def _show(self, payload: events.Payload) -> None:
        if isinstance(payload, events.Warning):
            self._show_line(payload.message)
        elif isinstance(payload, events.ReporterFailed) and self._source.refused is None:
            self._show_line(f"{payload.reporter}: {payload.message}; it is tried again")


def _is_the_reporters(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    return module not in ("hostcore", "stamina", "tenacity")


# -- artifacts ---------------------------------------------------------------------------------------------------------


def uploads_of(directory: RunDirectory, chosen: ChosenUploaders, *, limits: UploadLimits | None = None) -> Uploads:
    """Return the uploads of a run that has ended; nothing of it is given up because it has waited.

    :raises LedgerBusy: When another process uploads it now.
    """
    attempt = newest_attempt(directory.attempts)
    Ledger(directory.uploads, attempt=attempt).close()
    checkpoints, samples = artifact_folders(directory, attempt)
    inventory = Inventory.of(directory, checkpoints=checkpoints, samples=samples)
    context = upload_context(chosen.spec, directory, attempt, base_uri=chosen.base_uri)
    return Uploads(chosen.destinations, inventory, context, owed=chosen.owed, limits=limits)


def upload_until(uploads: Uploads, stop: Callable[[Backlogs], bool], *, give_up_seconds: float) -> bool:
    """Upload until nothing is left, or nothing gets through any more.

    :param stop: Called now and then with what is left; returns True to stop.
    :param give_up_seconds: The time in which nothing may arrive while every uploader that has something left fails.
    :return: True if it was stopped.
    """
    arrived, since = -1, time.monotonic()
    try:
        uploads.start()
        uploads.finish(final=True)
        while not uploads.is_drained():
            time.sleep(_POLL_SECONDS)
            pending = uploads.pending()
            if stop(pending):
                return True
            busy = [one for one in pending.by_uploader.values() if one.left]
            if pending.uploaded_files != arrived or not busy or not all(one.is_failing for one in busy):
                arrived, since = pending.uploaded_files, time.monotonic()
            elif time.monotonic() - since > give_up_seconds:
                break
    finally:
        uploads.abandon()
    return False
