"""Result and output of a run in its directory, as launchers read them."""

import codecs
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from hostcore_hookspecs import FatalError, LaunchStatus, LogChunk

#: How a run may have ended, as its ``result.json`` says it.
_ENDS = ("succeeded", "failed", "cancelled", "preempted")
_CHUNK_BYTES = 1 << 20
#: Of a ``result.json``: what is longer is none.
_MOST_BYTES = 64 << 20


def earlier_result(run_dir: str, launch_id: str = "") -> int | None:
    """Return the mark of the present result, to know that of a launch by; None if there is none.

    To be asked before anything is started, and kept in the handle for :func:`result_of`.

    :param launch_id: Of the launch. If given, the answer is written down, and is the same for every further try: the
        run may have ended since the first.
    :raises OSError: When the run directory cannot be written.
    """
    now = _changed_ns(Path(run_dir, "result.json"))
    if not launch_id:
        return now
    noted = Path(run_dir, "config", f"before.{launch_id}")
    noted.parent.mkdir(parents=True, exist_ok=True)
    try:
        with noted.open("x") as file:
            file.write(f"{now or 0}\n")
    except FileExistsError:
        text = noted.read_text()
        # Empty: its writer was killed before it wrote the time, and has started nothing.
        return int(text) or None if text else now
    return now


def result_of(run_dir: str, earlier: int | None) -> LaunchStatus | None:
    """Return the end of a launch, as its supervisor has recorded it; None if it has not (yet).

    A run that was resumed, or that its engine has started again under the same handle, has the result of its earlier
    attempt until it has one of its own: that is none. One that cannot be read is ``lost``.

    :param earlier: What :func:`earlier_result` was when it was launched.
    """
    file = Path(run_dir, "result.json")
    if _changed_ns(file) in (None, earlier):
        return None
    try:
        with _opened(file) as result:
            ended: dict[str, Any] = orjson.loads(result.read(_MOST_BYTES))
        status = ended["status"]
        if status not in _ENDS:
            raise ValueError(f"no run ends {status!r}")
        if Path(run_dir, "attempts", f"{int(ended.get('attempt') or 0) + 1}.json").exists():
            return None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        return LaunchStatus(status="lost", message=f"{file} cannot be read: {error!r}")
    message = (ended.get("error") or {}).get("message") or ended.get("reason") or ""
    return LaunchStatus(status=status, message=str(message), exit_code=ended.get("exit_code"))


def read_log(file: Path, since: str, *, whole_lines: bool = False) -> LogChunk:
    """A piece of a file that grows.

    :param since: A byte offset; empty for the beginning.
    :param whole_lines: Whether it ends with a line, unless it has none.
    :raises FatalError: If ``since`` is none.
    """
    if since and not (since.isascii() and since.isdecimal()):
        raise FatalError(f"{since!r} is no place in the log", hint="pass what the chunk before gave as 'next'")
    offset = int(since or 0)
    try:
        with _opened(file) as log:
            log.seek(offset)
            data = log.read(_CHUNK_BYTES)
        if whole_lines:
            data = data[: data.rfind(b"\n") + 1] or data
    except FileNotFoundError:
        return LogChunk(text="", next=str(offset))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    half_a_character = len(decoder.getstate()[0])
    return LogChunk(text=text, next=str(offset + len(data) - half_a_character))


def _opened(file: Path) -> BinaryIO:
    """A file of a run directory, opened for reading. The reader may have more rights than the run that writes there.

    :raises FileNotFoundError: When there is none, or a link, or something else that is no regular file.
    """
    if file.is_symlink():
        raise FileNotFoundError(f"{file} is a link")
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{file} is no regular file")
    return os.fdopen(descriptor, "rb")


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
