"""The folder of a sweep, and requests of other commands to its driver.

::

    sweeps/<sweep_id>/
      sweep.json         the sweep, with its job in it, and where its trials run
      limits.json        the limits that hold; replaced when they are changed
      records.jsonl      what was decided and what has happened
      stop.json          the wish that the driver stops, if there is one
      jobs/0007.json     the job of trial 7
      logs/0007.log      what the command that ran it has printed
      optuna.journal     the trials that have ended, for Optuna's own tools

The runs are where all runs are: in the folder of all runs, or at a service.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.events.folder_sync import sync_folder
from hostcore.events.writer import now_ms
from hostcore.job.forms import structure
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, read_document, write_document
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.spec import LimitsSpec, Sweep, load_sweep, plain

SWEEPS_DIR_VARIABLE: Final = "HOSTCORE_SWEEPS_DIR"


class UnknownSweep(HostcoreError):
    """There is no such sweep."""

    code = "sweep.unknown"


class DifferentSweep(HostcoreError):
    """The folder has another sweep."""

    code = "sweep.different"


class SweepUnwritable(HostcoreError):
    """The folder of a sweep cannot be written."""

    code = "sweep.unwritable"


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Convert the system's errors about a folder of a sweep into :class:`SweepUnwritable`.

    :param path: The folder, or what is written in it.
    """
    try:
        yield
    except OSError as error:
        hint = f"have it belong to this user, or set {SWEEPS_DIR_VARIABLE} to another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "make room on its disk; trials that run go on, and so does `hostcore sweep` then"
        raise SweepUnwritable(
            f"the folder of the sweep cannot be written: {error.strerror or error}",
            file=error.filename or str(path),
            hint=hint,
        ) from error


def sweeps_dir() -> Path:
    """The folder of all sweeps: ``HOSTCORE_SWEEPS_DIR``, or ``sweeps`` in the working directory; absolute."""
    return Path(os.environ.get(SWEEPS_DIR_VARIABLE) or "sweeps").absolute()


@attrs.frozen(kw_only=True)
class DriverStopRequest:
    """The wish that the driver stops: trials write a checkpoint and are paused."""

    reason: str
    #: Milliseconds since 1970.
    requested_ms: int


@attrs.frozen(kw_only=True)
class TrialPlace:
    """Place of the trials' runs."""

    #: The folder of all runs of this machine; absolute.
    runs: Path
    #: The service that they are at, in place of it.
    server: str | None = None


@attrs.frozen
class SweepFolder:
    """``sweeps/<sweep_id>/``."""

    #: Absolute.
    path: Path

    @property
    def sweep(self) -> Path:
        """The sweep, with its job in it."""
        return self.path / "sweep.json"

    @property
    def limits(self) -> Path:
        """The limits that hold."""
        return self.path / "limits.json"

    @property
    def records(self) -> Path:
        """File of decisions and events."""
        return self.path / "records.jsonl"

    @property
    def stop(self) -> Path:
        """The wish that the driver stops."""
        return self.path / "stop.json"

    @property
    def journal(self) -> Path:
        """The trials that have ended, as Optuna's journal."""
        return self.path / "optuna.journal"

    def job(self, number: int) -> Path:
        """The job of a trial."""
        return self.path / "jobs" / f"{number:04d}.json"

    def answer(self, number: int) -> Path:
        """The JSON document that the command has printed which ran a trial."""
        return self.path / "logs" / f"{number:04d}.json"

    def output(self, number: int) -> Path:
        """Return the path of a trial's other output."""
        return self.path / "logs" / f"{number:04d}.log"

    def make(self, sweep: Sweep, place: TrialPlace) -> None:
        """Make the folder of a new sweep, or see that it has the same sweep, and take over its new limits.

        :raises DifferentSweep: When another sweep lies here, or its trials run elsewhere.
        :raises SweepUnwritable: When the folder cannot be made or written.
        """
        if not self.sweep.exists():
            with file_errors(self.path):
                for folder in (self.path / "jobs", self.path / "logs"):
                    folder.mkdir(parents=True, exist_ok=True)
                sync_folder(self.path.parent)
            self._write_limits(sweep.spec.limits)  # first: a sweep has limits
            self._write_sweep(sweep, place)
            return
        before, begun_at = self.read()
        self._require_same(sweep, before)
        self.require_server(place.server)
        if sweep.spec.limits != before.spec.limits:  # the file was edited
            self._write_limits(sweep.spec.limits)
            self._write_sweep(attrs.evolve(sweep, job_dir=before.job_dir), begun_at)

    def require_server(self, server: str | None) -> None:
        """Refuse to go on at another place than the one where the trials run.

        :param server: The URL of a service; None: this machine.
        :raises DifferentSweep: When the trials run elsewhere.
        """
        sweep, begun_at = self.read()
        if server != begun_at.server:
            raise DifferentSweep(
                f"the trials of the sweep {sweep.sweep_id!r} run at {begun_at.server or 'this machine'}",
                file=str(self.sweep),
                hint=f"give --server {begun_at.server}" if begun_at.server else "leave --server out",
            )

    def require_runs(self, runs: Path) -> None:
        """Refuse to go on in another folder of runs than the one that has the runs of the trials.

        :raises DifferentSweep: When they are elsewhere.
        """
        sweep, begun_at = self.read()
        if begun_at.server or runs.resolve() != begun_at.runs.resolve():
            raise DifferentSweep(
                f"the runs of the sweep {sweep.sweep_id!r} are in {begun_at.server or begun_at.runs}",
                file=str(self.sweep),
                hint="leave --runs-dir out: a sweep goes on where it was begun; another sweep_id begins one elsewhere",
            )

    def _write_sweep(self, sweep: Sweep, place: TrialPlace) -> None:
        self.write(self.sweep, {**sweep.as_dict(), "runs": str(place.runs), "server": place.server})

    def write(self, path: Path, document: object) -> None:
        """Replace a document of the sweep, whole or not at all.

        :raises SweepUnwritable: When it cannot be written; what was there before is intact.
        """
        with file_errors(path):
            write_document(path, document)

    def _require_same(self, sweep: Sweep, before: Sweep) -> None:
        ours, theirs = sweep.as_dict(), before.as_dict()
        keys = [key for key in ours if key not in ("limits", "job_dir") and ours[key] != theirs.get(key)]
        if keys:
            raise DifferentSweep(
                f"the sweep {sweep.sweep_id!r} exists and differs in {', '.join(keys)}",
                pointer=f"/{keys[0]}",
                file=str(self.sweep),
                hint="give this one another sweep_id, or none; only limits may change",
            )

    def read(self) -> tuple[Sweep, TrialPlace]:
        """The sweep as it was begun, and where its trials run.

        :raises UnknownSweep: When there is none.
        """
        try:
            document = read_document(self.sweep)
        except FileNotFoundError:
            raise UnknownSweep(
                f"there is no sweep in {self.path}", file=str(self.sweep), hint="`hostcore sweep FILE` begins one"
            ) from None
        runs, server = document.pop("runs", None), document.pop("server", None)
        if not isinstance(runs, str):
            raise CorruptDocument("not a sweep: it has no place of its runs", file=str(self.sweep))
        place = TrialPlace(runs=Path(runs), server=server)
        return load_sweep(document), place

    def read_limits(self) -> LimitsSpec:
        """The limits that hold."""
        return structure(LimitsSpec, read_document(self.limits))

    def _write_limits(self, limits: LimitsSpec) -> None:
        self.write(self.limits, plain(limits))

    def add_trials(self, count: int, sweep: Sweep) -> int:
        """Raise the limit of trials. How many there are in all then."""
        with file_errors(self.path), self._turn():
            limits = self.read_limits()
            trials = (limits.trials or sweep.most_trials) + count
            self._write_limits(attrs.evolve(limits, trials=trials))
        return trials

    def request_stop(self, reason: str) -> None:
        """Ask the driver to stop."""
        self.write(self.stop, attrs.asdict(DriverStopRequest(reason=reason, requested_ms=now_ms())))

    def read_stop(self) -> DriverStopRequest | None:
        """The wish that the driver stops; None if there is none."""
        try:
            found: dict[str, Any] = read_document(self.stop)
        except FileNotFoundError:
            return None
        except (CorruptDocument, UnreadableDocument):
            found = {}
        reason, requested_ms = found.get("reason"), found.get("requested_ms")
        return DriverStopRequest(
            reason=str(reason or "the sweep was stopped"),
            requested_ms=requested_ms if isinstance(requested_ms, int) else now_ms(),
        )

    def clear_stop(self) -> None:
        """Forget a wish that was fulfilled, or that an earlier driver was asked."""
        with file_errors(self.stop):
            self.stop.unlink(missing_ok=True)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Be the only process that changes the limits."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def find_sweep(name: str) -> SweepFolder:
    """The folder of the sweep that a name means: its folder, its file, or its id in the folder of all sweeps.

    :raises UnknownSweep: When there is none.
    """
    path = Path(name)
    if path.is_file():
        sweep = load_sweep(path)
        path = sweeps_dir() / sweep.sweep_id
    elif not (path / "sweep.json").is_file():
        path = sweeps_dir() / name
    if (path / "sweep.json").is_file():
        return SweepFolder(path.absolute())
    there = sorted(one.parent.name for one in sweeps_dir().glob("*/sweep.json"))
    known = f"there are {', '.join(there)}" if there else f"there is none in {sweeps_dir()}"
    raise UnknownSweep(
        f"there is no sweep {name!r}", file=str(path), hint=f"{known}; {SWEEPS_DIR_VARIABLE} sets the folder of sweeps"
    )
