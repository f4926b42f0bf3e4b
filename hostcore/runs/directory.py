"""The files of a run, and the folders of all runs and of downloads."""

import functools
import os
import shutil
import stat
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import attrs

from hostcore.events.folder_sync import sync_folder

RUNS_DIR_VARIABLE = "HOSTCORE_RUNS_DIR"
CACHE_DIR_VARIABLE = "HOSTCORE_CACHE_DIR"


def runs_dir() -> Path:
    """Return the folder of all runs: ``HOSTCORE_RUNS_DIR``, or ``runs`` in the working directory; absolute."""
    return Path(os.environ.get(RUNS_DIR_VARIABLE) or "runs").absolute()


def cache_dir() -> Path:
    """Return the folder for downloads: ``HOSTCORE_CACHE_DIR``, or ``hostcore`` in the user's cache; absolute."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    return Path(os.path.expanduser(chosen)).absolute() if chosen else user_cache() / "hostcore"  # noqa: PTH111


def user_cache() -> Path:
    """Return the user's folder for caches: ``XDG_CACHE_HOME``, or ``~/.cache``; absolute.

    A temporary folder, with a warning, for a user without a home, as containers run with any uid.
    """
    # Unlike Path's, these leave a ~ alone where there is no home.
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111
    folder = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
    if folder.is_absolute():
        nearest = next(place for place in (folder, *folder.parents) if place.exists())
        if nearest == folder or os.access(nearest, os.W_OK):
            return folder
    return _temporary_cache()


@functools.cache
def _temporary_cache() -> Path:
    folder = Path(tempfile.gettempdir(), f"hostcore-cache-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        folder = Path(tempfile.mkdtemp(prefix="hostcore-cache-"))  # others may have put anything into the first
    message = f"the user {os.getuid()} has no home: the cache is {folder}, unless {CACHE_DIR_VARIABLE} names a folder"
    warnings.warn(message, RuntimeWarning, stacklevel=3)
    return folder


class _Below:
    """A path below the run directory, as an attribute of :class:`RunDirectory`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, directory: "RunDirectory", _owner: type) -> Path:
        return directory.path / self._name


@attrs.frozen
class RunDirectory:
    """``runs/<run_id>/``. Every file in it has one writer."""

    #: Absolute.
    path: Path

    #: The job as resolved, its plugins and its environment.
    record = _Below("config/run.json")
    #: The packages of the environment that was built for its workers (PEP 751), if the job has such an environment.
    lock = _Below("config/pylock.toml")
    #: The launch by a launcher, if the run was started apart from the terminal.
    launch = _Below("config/launch.json")
    #: The supervisor that runs it now.
    lease = _Below("lease.json")
    #: The folder of claims, one for each attempt.
    attempts = _Below("attempts")
    #: The folder of all logs.
    logs = _Below("logs")
    #: The merged event log.
    events = _Below("logs/events.jsonl")
    #: The folder of checkpoints and their commit records.
    checkpoints = _Below("checkpoints")
    #: The folder of generated samples.
    samples = _Below("samples")
    #: The loss curve.
    loss_plot = _Below("plots/loss.png")
    #: The end of the newest attempt.
    result = _Below("result.json")
    #: The folder of cursors: the place of each reporter in the event log.
    cursors = _Below("cursors")
    #: The ledger of uploads.
    uploads = _Below("uploads.jsonl")
    #: The folder of copies of documents that are being uploaded.
    spool = _Below("spool")

    @property
    def run_id(self) -> str:
        """The name of the folder."""
        return self.path.name

    def read_lock(self) -> str | None:
        """Return the text of :attr:`lock`; None if there is none."""
        return self.lock.read_text(errors="replace") if self.lock.is_file() else None

    def contract(self, attempt: int, rank: int) -> Path:
        """Return the file that a worker is started with."""
        return self.path / "config" / f"contract.attempt-{attempt}.rank-{rank}.json"

    def cancel_request(self, attempt: int) -> Path:
        """Return the file that requests the end of an attempt."""
        return self.path / "control" / f"cancel.attempt-{attempt}.json"

    def rank_events(self, attempt: int, rank: int) -> Path:
        """Return the log of a rank's own events."""
        return self.logs / f"rank-{rank}.attempt-{attempt}.jsonl"

    def rank_output(self, attempt: int, rank: int) -> Path:
        """Return the file of a rank's standard output and standard error."""
        return self.logs / f"rank-{rank}.attempt-{attempt}.log"

    def rank_hooks(self, attempt: int, rank: int) -> Path:
        """Return the log of a rank's calls, if the run was started with ``--trace-hooks``."""
        return self.logs / f"hooks.rank-{rank}.attempt-{attempt}.log"

    def ranks(self, attempt: int) -> list[int]:
        """Return the ranks that an attempt was started with, by its contracts."""
        found = self.record.parent.glob(f"contract.attempt-{attempt}.rank-*.json")
        return sorted(int(rank) for path in found if (rank := path.stem.rpartition("-")[2]).isdecimal())

    @property
    def has_samples(self) -> bool:
        """Return whether there is a generated sample."""
        return self.samples.is_dir() and any(self.samples.iterdir())

    @property
    def is_free(self) -> bool:
        """Return whether a run can be made here: there is nothing, or a link to an empty folder (on a larger disk)."""
        if self.path.is_symlink():
            return self.path.is_dir() and not any(self.path.iterdir())
        return not self.path.exists()

    def make(self) -> None:
        """Make the folders, on the disk. If the run directory is a link to a folder, they are made there.

        :raises FileExistsError: When the run exists already.
        """
        made = [folder for folder in self.path.parents if not folder.exists()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_symlink():
            self.path.mkdir()
        for folder in (self.record.parent, self.attempts, self.logs, self.checkpoints, self.samples):
            folder.mkdir()
        for folder in (self.path, self.path.parent, *(folder.parent for folder in made)):
            sync_folder(folder)

    def remove(self) -> None:
        """Remove what :meth:`make` has made, with all that is in it, and ignore errors. A link and its folder stay."""
        if not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
            return
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
