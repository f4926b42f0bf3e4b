"""Telling a reporter what is in the log of a run already: all of it, or what it has missed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import attrs

from hostcore.errors import all_errors
from hostcore.job.layers import apply_override, override_name
from hostcore.job.load import load_job
from hostcore.job.origins import Origins, mark, with_origin
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.attribution import traceback_from
from hostcore.plugins.component import load_component
from hostcore.plugins.discover import Discovered, discover
from hostcore.plugins.requirements import check_contract_version
from hostcore.plugins.resolve import Selected, resolve
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.supervisor.delivery.addressee import Addressee, addressees_of, unique_names
from hostcore.supervisor.delivery.courier import Courier, DeliveryLimits
from hostcore.supervisor.delivery.cursor import Cursor, CursorFile
from hostcore.supervisor.delivery.log_view import LogView
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.reporter import ReporterContext

#: How long a reporter may fail without a break before it is given up.
PATIENCE_SECONDS: Final = 30.0


@attrs.frozen(kw_only=True)
class Chosen:
    """The reporter that is to be told."""

    addressee: Addressee
    #: Whether it is one of the run's own.
    is_own: bool
    #: Whether it is one of the run's own as it was in the run, so that its cursor counts for it.
    is_same: bool
    #: The job as recorded.
    spec: JobSpec


def choose(directory: RunDirectory, name: str, settings: Sequence[str] = ()) -> Chosen:
    """Load a reporter.

    :param name: One of the run's own, by its name or that of its cursor, with the settings it has there; or any other.
    :param settings: ``key=value``, applied last.
    :raises HostcoreError: When there is no such reporter, or its settings are wrong.
    """
    record = RunRecord.read(directory.record)
    job_dir = Path(record.job_dir)
    spec = load_job(record.job, base_dir=job_dir)
    discovered = discover()
    place = _own_place(spec, name, discovered)
    own = None if place is None else spec.reporters[place]
    at = "" if place is None else f"/reporters/{place}"
    use = own or DeliveryUse(use=name)
    ref = _resolved(use.use, discovered, at)
    chosen: dict[str, object] = dict(use.settings)
    origins: Origins = {}
    for override in settings:
        name_of_override = override_name(override)
        before, chosen = chosen, apply_override(chosen, override, name=name_of_override)
        origins = with_origin(origins, override, before, chosen, name=name_of_override)
    selected = Selected(ref=ref, settings=chosen, pointer=at, use=f"reporter:{ref.name}", named_at=at)
    try:
        component = load_component(selected, job_dir=job_dir if own else Path.cwd())
    except HostcoreError as error:
        mark(all_errors(error), {f"{at}{place}": origin for place, origin in origins.items()})
        for one in all_errors(error):
            one.file = one.file or (str(directory.record) if own else None)
        raise
    (addressee,) = addressees_of([component], [use])
    if place is not None:
        addressee = attrs.evolve(addressee, name=_names(spec)[place])
    return Chosen(addressee=addressee, is_own=own is not None, is_same=own is not None and not settings, spec=spec)


def _names(spec: JobSpec) -> list[str]:
    return unique_names([use.use.rpartition("/")[2] for use in spec.reporters])


def _own_place(spec: JobSpec, name: str, discovered: Discovered) -> int | None:
    """Which of the run's own reporters is meant; None if none."""
    names = _names(spec)
    if name in names:
        return names.index(name)
    try:
        meant = resolve(name, "reporter", discovered)
    except HostcoreError:
        return None  # told in a moment
    return next((at for at, use in enumerate(spec.reporters) if _is(use, meant, discovered)), None)


def _is(use: DeliveryUse, meant: PluginRef, discovered: Discovered) -> bool:
    try:
        return resolve(use.use, "reporter", discovered) == meant
    except HostcoreError:  # it is not installed any more
        return False


def _resolved(name: str, discovered: Discovered, at: str) -> PluginRef:
    ref = resolve(name, "reporter", discovered, pointer=at or None)
    check_contract_version(ref, pointer=at)
    return ref


@attrs.frozen(kw_only=True)
class Replayed:
    """What has come of it."""

    #: Events that it has taken.
    told: int
    #: Events that it was to be told.
    events: int
    #: What it failed with, in one line; None if it did not.
    problem: str | None
    #: The reporter's own traceback of that; empty if there is none.
    traceback: str = ""


class Replay:
    """Tells a reporter the log as it is now.

    :param pending: Only what is behind the cursor that the reporter has in this run.
    :param tell: Takes what people should know meanwhile.
    """

    def __init__(
        self,
        directory: RunDirectory,
        chosen: Chosen,
        *,
        pending: bool,
        tell: Callable[[str], object],
        limits: DeliveryLimits | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        log = LogView(directory.events)
        self._tell = tell
        self._patience_seconds = patience_seconds
        self._file = CursorFile(directory.cursors / f"{chosen.addressee.name}.json", identity=chosen.addressee.identity)
        self._before, problem = self._file.read(log) if chosen.is_own else (Cursor(), None)
        if pending and problem:
            tell(f"its cursor is of no use: {problem}; it is told everything")
        self._keeps_cursor = chosen.is_same or (chosen.is_own and pending)
        begin = self._before if pending else Cursor()
        last_seq = log.last_seq()
        #: How many events there are to tell.
        self.events = last_seq - begin.seq
        context = ReporterContext(
            run_id=directory.run_id,
            attempt=newest_attempt(directory.attempts),
            job=job_view(chosen.spec),
            run_dir=str(directory.path),
            last_seq=last_seq,
        )
        self.courier = Courier(
            chosen.addressee,
            log,
            context,
            None,
            begin=lambda: begin,
            tell=self._tell_of,
            limits=limits,
        )

    def run(self, look: Callable[[int], object]) -> Replayed:
        """Tell it everything.

        :param look: Called now and then with the number of events taken so far.
        """
        courier = self.courier
        courier.start()
        courier.finish()
        try:
            while not courier.is_over:
                courier.join(0.1)
                courier.calls.look()
                look(courier.taken)
                if courier.calls.outage_seconds > self._patience_seconds:
                    courier.abandon()
                    courier.join(1.0)
                    break
        finally:
            courier.abandon()
            if self._keeps_cursor and courier.cursor.offset > self._before.offset:
                self._file.path.parent.mkdir(exist_ok=True)
                self._file.write(courier.cursor)
        look(courier.taken)
        error = courier.calls.error
        return Replayed(
            told=courier.taken,
            events=self.events,
            problem=courier.calls.problem,
            traceback=traceback_from(error, _is_the_reporters) if error else "",
        )

    def _tell_of(self, payload: events.Payload) -> None:
        if isinstance(payload, events.Warning):
            self._tell(payload.message)
        elif isinstance(payload, events.ReporterFailed) and not self.courier.calls.has_given_up:
            self._tell(f"{payload.reporter}: {payload.message}; it is tried again")


def _is_the_reporters(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    return module not in ("hostcore", "stamina", "tenacity")
