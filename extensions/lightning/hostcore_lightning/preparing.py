"""``prepare_data``: once on a machine, however many processes of a run ask for it, and never by two at a time."""

import hashlib
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from hostcore_builtin_plugins.processes import boot_id, proc_stat
from hostcore_lightning.settings import CannotRun, Hyperparams

#: After which a wait for another process is reported.
_QUIET_SECONDS: Final = 5.0
#: After which it is an error.
_LONGEST_SECONDS: Final = 3600.0

_log = logging.getLogger(__name__)


def prepare_once(
    prepare: Callable[[], Any],
    folder: Path,
    hyperparams: Hyperparams,
    *,
    several: bool,
    quiet_seconds: float = _QUIET_SECONDS,
    longest_seconds: float = _LONGEST_SECONDS,
) -> None:
    """Call ``prepare_data``, unless another rank of this run has done it on this machine.

    :param folder: Where the locks are. Each module with its arguments has one for each folder that it may write to.
    :param several: Whether the run has several ranks: the first of a machine that comes does it, the others wait.
    :raises CannotRun: Another process has been at it for too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"prepare_data-{_key(hyperparams)}.lock"
    with _held(path, hyperparams, quiet_seconds, longest_seconds):
        done, run = path.with_suffix(".done"), _run_on_this_machine()
        if several and done.is_file() and done.read_text() == run:
            return
        done.unlink(missing_ok=True)
        prepare()
        if several:
            done.write_text(run)


@contextmanager
def _held(path: Path, hyperparams: Hyperparams, quiet_seconds: float, longest_seconds: float) -> Iterator[None]:
    lock = FileLock(path)
    named = {"/datamodule": hyperparams.datamodule, "/module": hyperparams.module}
    pointer, name = next(((key, str(one)) for key, one in named.items() if one), ("/config", "the config"))
    try:
        lock.acquire(timeout=quiet_seconds)
    except Timeout:
        _log.warning("waiting for another process, which runs prepare_data of %s (%s)", name, path)
        try:
            lock.acquire(timeout=longest_seconds)
        except Timeout:
            raise CannotRun(
                pointer,
                f"another process has been running prepare_data of {name} for more than {longest_seconds:.0f} seconds",
                hint=f"wait for it, or end it; it holds {path}",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _key(hyperparams: Hyperparams) -> str:
    """One for each class with its arguments, the file that it comes from, and the folder that relative paths are of."""
    path, init = (
        (hyperparams.datamodule, hyperparams.datamodule_init)
        if hyperparams.datamodule
        else (hyperparams.module, hyperparams.init)
    )
    found = None if path is None else path.load()
    file = getattr(sys.modules.get(getattr(found, "__module__", "")), "__file__", "")
    config = [str(hyperparams.cli), dict(hyperparams.config)] if hyperparams.config is not None else []
    said = [platform.node(), str(path), dict(init), file, str(Path.cwd()), *config]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _run_on_this_machine() -> str:
    """The same in all ranks that one attempt has started on this machine, and never again."""
    parent = os.getppid()
    try:
        begun = str(proc_stat(parent)[1])
    except OSError:  # no Linux
        begun = ""
    meeting = [os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")]
    return "/".join([boot_id(), str(parent), begun, *meeting])
