"""Where everything of a run lies."""

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
    """The folder of all runs: ``HOSTCORE_RUNS_DIR``, or ``runs`` in the working directory; absolute."""
    return Path(os.environ.get(RUNS_DIR_VARIABLE) or "runs").absolute()


def cache_dir() -> Path:
    """The folder for downloads: ``HOSTCORE_CACHE_DIR``, or ``hostcore`` in the user's cache; absolute."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    return Path(os.path.expanduser(chosen)).absolute() if chosen else user_cache() / "hostcore"  # noqa: PTH111


def user_cache() -> Path:
    """The user's folder for caches: ``XDG_CACHE_HOME``, or ``~/.cache``; absolute.

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


@attrs.frozen
class RunDirectory:
    """``runs/<run_id>/``. Every file in it has one writer."""

    #: Absolute.
    path: Path

    @property
    def run_id(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def record(self) -> Path:
        """The job as resolved, its plugins and its environment."""
        return self.path / "config" / "run.json"

    @property
    def lock(self) -> Path:
        """What the environment of its workers was built from (PEP 751), if the job has one that is built."""
        return self.path / "config" / "pylock.toml"

    def read_lock(self) -> str | None:
        """The text of :attr:`lock`; None if there is none."""
        return self.lock.read_text(errors="replace") if self.lock.is_file() else None

    def contract(self, attempt: int, rank: int) -> Path:
        """What a worker was started with."""
        return self.path / "config" / f"contract.attempt-{attempt}.rank-{rank}.json"

    @property
    def launch(self) -> Path:
        """How a launcher started the run, if it was started apart from the terminal."""
        return self.path / "config" / "launch.json"

    def cancel_request(self, attempt: int) -> Path:
        """The request that an attempt ends."""
        return self.path / "control" / f"cancel.attempt-{attempt}.json"

    @property
    def lease(self) -> Path:
        """Who runs it now."""
        return self.path / "lease.json"

    @property
    def attempts(self) -> Path:
        """The folder of claims, one for each attempt."""
        return self.path / "attempts"

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.path / "logs"

    @property
    def events(self) -> Path:
        """The merged event log."""
        return self.logs / "events.jsonl"

    def rank_events(self, attempt: int, rank: int) -> Path:
        """What a rank appended."""
        return self.logs / f"rank-{rank}.attempt-{attempt}.jsonl"

    def rank_output(self, attempt: int, rank: int) -> Path:
        """A rank's standard output and standard error."""
        return self.logs / f"rank-{rank}.attempt-{attempt}.log"

    def rank_hooks(self, attempt: int, rank: int) -> Path:
        """The calls of a rank, if the run was started with ``--trace-hooks``."""
        return self.logs / f"hooks.rank-{rank}.attempt-{attempt}.log"

    def ranks(self, attempt: int) -> list[int]:
        """The ranks that an attempt was started with, as its contracts say."""
        found = self.record.parent.glob(f"contract.attempt-{attempt}.rank-*.json")
        return sorted(int(rank) for path in found if (rank := path.stem.rpartition("-")[2]).isdecimal())

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints and their commit records."""
        return self.path / "checkpoints"

    @property
    def samples(self) -> Path:
        """The folder of generated samples."""
        return self.path / "samples"

    @property
    def has_samples(self) -> bool:
        """Whether there is a generated sample."""
        return self.samples.is_dir() and any(self.samples.iterdir())

    @property
    def loss_plot(self) -> Path:
        """The loss curve."""
        return self.path / "plots" / "loss.png"

    @property
    def result(self) -> Path:
        """How the newest attempt ended."""
        return self.path / "result.json"

    @property
    def cursors(self) -> Path:
        """The folder of cursors: how far each reporter has come in the event log."""
        return self.path / "cursors"

    @property
    def uploads(self) -> Path:
        """The ledger of uploads: what has arrived where."""
        return self.path / "uploads.jsonl"

    @property
    def spool(self) -> Path:
        """The folder of what waits for its upload and may be gone from its own place by then."""
        return self.path / "spool"

    @property
    def is_free(self) -> bool:
        """Whether a run can be made here: there is nothing, or a link to an empty folder (on a larger disk)."""
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
