"""The options ``--event-log``, ``--event-format`` and ``--manifest`` of ``run`` and ``resume``."""

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import click

from hostcore.cli.output import shown_json, warn

if TYPE_CHECKING:
    from hostcore.job.sections import DeliveryUse
    from hostcore.runs.directory import RunDirectory
    from hostcore.supervisor.interrupts import Interrupts
    from hostcore.supervisor.plan import RunPlan

F = TypeVar("F", bound=Callable[..., Any])

_STANDARD_OUTPUT: Final = "-"
_FORMATS: Final = ("hostcore", "trn")
#: Between two reads of the log.
_READ_SECONDS: Final = 0.1
#: The wait of a stopped run for a reader of standard output.
_HURRIED_SECONDS: Final = 5.0

_OPTIONS: Final = (
    click.option(
        "--event-log",
        metavar="FILE|-",
        help="Append each event, as a line of JSON, to FILE as well; - prints them on standard output.",
    ),
    click.option(
        "--event-format",
        type=click.Choice(_FORMATS),
        help="The shape of these lines: that of events.jsonl (hostcore), or that of trn, with job_submitted, which is "
        "the default of trn's own command lines: with --config or --checkpoint.",
    ),
    click.option(
        "--manifest",
        metavar="FILE",
        help="Append a line to FILE, an index of jobs, when the run is submitted, and one when it ends.",
    ),
)


@attrs.frozen(kw_only=True)
class EventOptions:
    """Further receivers of the events of a run."""

    #: A file, or ``-``; None: none.
    event_log: str | None = None
    event_format: str = "hostcore"
    #: The index of jobs; None: none.
    manifest: str | None = None

    @property
    def on_standard_output(self) -> bool:
        """Return whether standard output is for events alone."""
        return self.event_log == _STANDARD_OUTPUT

    def reporters(self, job: Path | None, profile: str | None) -> "Sequence[DeliveryUse]":
        """Return the reporters that write the files; they are part of the run, and of its later attempts.

        :param job: The job file; None if the job is that of an earlier run.
        :param profile: The applied one of the file's profiles.
        """
        from hostcore.job.names import BUILTIN
        from hostcore.job.sections import DeliveryUse

        about = {"config_path": str(job.absolute())} if job else {}
        about |= {"profile": profile} if job and profile else {}
        uses = []
        if self.event_log and not self.on_standard_output:
            shape = {"format": self.event_format, **about} if self.event_format != "hostcore" else {}
            settings = {"path": str(Path(self.event_log).absolute()), **shape}
            uses.append(DeliveryUse(use=f"{BUILTIN}jsonl", settings=settings))
        if self.manifest:
            settings = {"path": str(Path(self.manifest).absolute()), **about}
            uses.append(DeliveryUse(use=f"{BUILTIN}job-index", settings=settings))
        return uses

    def refuse_standard_output(self, starter: str) -> None:
        """Refuse ``--event-log -`` for a run of another process.

        :param starter: Starts that process.
        :raises click.UsageError: If the events are for standard output of this process.
        """
        if self.on_standard_output:
            raise click.UsageError(
                f"--event-log - is not for a run that {starter} starts: `hostcore logs -f RUN --json` prints its events"
            )

    @contextmanager
    def printed(
        self, plan: "RunPlan", interrupts: "Interrupts", job: Path | None, profile: str | None
    ) -> Iterator[None]:
        """Print new events of the run's log while it is entered, if that was requested.

        :param job, profile: See :meth:`reporters`.
        """
        import orjson

        from hostcore.events.codec import decode_event
        from hostcore_builtin_plugins.trn_events import TrnSubmission, in_trn_shape
        from hostcore_hookspecs.reporter import ReporterContext

        if not self.on_standard_output:
            yield
            return
        shape: Callable[[bytes], bytes] = bytes
        if self.event_format == "trn":
            run_dir = str(plan.directory.path)
            ctx = ReporterContext(run_id=plan.spec.run_id, attempt=1, job=plan.job, run_dir=run_dir)
            submission = TrnSubmission.of(ctx, config_path=job and job.absolute(), profile=profile)

            def shape(line: bytes) -> bytes:
                document = in_trn_shape(decode_event(line), submission, run_dir=run_dir)
                return orjson.dumps(document, default=dict, option=orjson.OPT_APPEND_NEWLINE)

        printer = _EventPrinter(plan.directory, shape)
        printer.start()
        try:
            yield
        finally:
            printer.finish(interrupts)


def event_options(command: F) -> F:
    """Give a command :class:`EventOptions` as ``events``."""

    @functools.wraps(command)
    def checked(
        *args: Any, event_log: str | None, event_format: str | None, manifest: str | None, **kwargs: Any
    ) -> Any:
        if event_format and not event_log:
            raise click.UsageError("--event-format says how --event-log is written: give that as well")
        for name, given in (("--event-log", event_log), ("--manifest", manifest)):
            if given is not None and not given:
                raise click.UsageError(f"{name} takes a file, found an empty name")
            if given and kwargs.get("server"):
                raise click.UsageError(
                    f"{name} and --server exclude each other: name a reporter in the job, "
                    "or have `hostcore logs -f RUN --json --server URL` print its events"
                )
        if event_log == _STANDARD_OUTPUT and kwargs["as_json"]:
            raise click.UsageError("--event-log - and --json exclude each other: both are for standard output")
        events = EventOptions(event_log=event_log, event_format=event_format or _usual_format(), manifest=manifest)
        if kwargs["detach"]:
            events.refuse_standard_output("--detach")
        return command(*args, events=events, **kwargs)

    for option in reversed(_OPTIONS):
        checked = option(checked)
    return cast("F", checked)


def _usual_format() -> str:
    """Return the format of the events that belongs to the command line: that of ``trn``, or that of hostcore."""
    given = click.get_current_context().params
    return "trn" if given.get("config") or given.get("checkpoint") else "hostcore"


class _EventPrinter:
    """Printer of new events, in a thread: the run waits for no reader.

    :param shape: Returns the text to print for a line of the log.
    """

    def __init__(self, directory: "RunDirectory", shape: Callable[[bytes], bytes]) -> None:
        from hostcore.events.reader import GrowingLog

        self._log = GrowingLog(directory.events)
        self._log.begin_behind(_ALL)
        self._shape = shape
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._print, name="hostcore event log", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self, interrupts: "Interrupts") -> None:
        """Print the remaining events. A signal ends the wait for a slow reader."""
        self._over.set()
        before = (interrupts.first, interrupts.forced)
        seconds = _HURRIED_SECONDS if interrupts.first else float("inf")
        while self._thread.is_alive() and seconds > 0 and (interrupts.first, interrupts.forced) == before:
            self._thread.join(_READ_SECONDS)
            seconds -= _READ_SECONDS

    def _print(self) -> None:
        try:
            over = False
            while not over:
                over = self._over.wait(_READ_SECONDS)  # first: what was written before the end is read after it
                for line in self._log.read():
                    _write(shown_json(self._shape(line)))
        except BrokenPipeError:
            return  # its reader has seen enough
        except OSError as error:
            warn(f"no more events are printed, since standard output cannot be written: {error.strerror}")


#: More than the number of any event.
_ALL: Final = 1 << 62


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]
