"""wandb, in the process that the reporter ``wandb`` calls (``python -m hostcore_trackers.wandb.session``).

wandb appends all its input to ``run-<id>.wandb``, and reads that file itself when it uploads it (``wandb sync``):
a row that is in there counts as reported. Seven bytes of wandb's own come first, then the log format of LevelDB: blocks
of 32 KiB, of records with a header of 7 bytes (CRC-32, length, type) that may continue in the next block. A record's
data is a ``wandb_internal.Record`` of protocol buffers. https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

import json
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import wandb
from wandb.errors import AuthenticationError, CommError, UsageError
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

from hostcore_hookspecs import FatalError, TransientError
from hostcore_trackers.history import TrackerHistory
from hostcore_trackers.library_process import serve

#: Seconds between wandb's writes of its file, and between polls of it: an event is reported when the file has it.
_FLUSH_SECONDS: Final = 0.005
#: Nothing of the process, the machine or the working folder is recorded, and nothing of it is watched.
_QUIET: Final[Mapping[str, Any]] = {
    "console": "off", "silent": True, "symlink": False, "save_code": False, "disable_code": True, "disable_git": True,
    "disable_job_creation": True, "x_disable_meta": True, "x_disable_machine_info": True, "x_disable_stats": True,
    "x_save_requirements": False, "program": "hostcore",
}  # fmt: skip
#: What wandb puts into a row by itself.
_OF_WANDB: Final = frozenset({"_step", "_runtime"})
#: What another try does not mend, in the words of wandb.
_REFUSED: Final = re.compile(r"error 40[134]\b|permission denied", re.IGNORECASE)

_BLOCK_BYTES: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_FILE_HEADER_BYTES: Final = 7
_FULL, _FIRST, _LAST = 1, 2, 4


class RunFile:
    """A file that may be growing.

    :param path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Where the next whole record begins.
        self._at = _FILE_HEADER_BYTES

    def new_records(self) -> Iterator[Record]:
        """The records that are whole now, and that were not read before.

        :raises OSError: The file cannot be read.
        """
        with self._path.open("rb") as opened:
            opened.seek(begin := self._at)
            content = opened.read()
        at, data = begin, b""
        while True:
            at += left if (left := _BLOCK_BYTES - at % _BLOCK_BYTES) < _HEADER.size else 0
            header = content[at - begin : at - begin + _HEADER.size]
            if len(header) < _HEADER.size:
                return
            _, length, kind = _HEADER.unpack(header)
            at += _HEADER.size
            part = content[at - begin : at - begin + length]
            if not kind or len(part) < length:  # zeros at its end, after a power cut, or a record that is being written
                return
            at += length
            data = part if kind in (_FULL, _FIRST) else data + part
            if kind in (_FULL, _LAST):
                self._at = at
                yield Record.FromString(data)


@attrs.frozen(kw_only=True)
class HistoryRow:
    """A row of a run's history."""

    #: wandb's own step.
    number: int
    values: dict[str, Any]


def rows_of(records: Iterator[Record]) -> Iterator[HistoryRow]:
    """The rows of the history among some records."""
    for record in records:
        if record.HasField("history"):
            yield HistoryRow(
                number=record.history.step.num,
                values={
                    ".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                },
            )


def run_files(folder: Path, *, project: str, run_id: str) -> Iterator[RunFile]:
    """The files of a run, in the order in which they were begun.

    :param folder: The one that wandb was given; its files are in ``wandb`` in it.
    """
    found = (folder / "wandb").glob(f"*run-*/run-{run_id}.wandb")
    for path in sorted(found, key=lambda path: path.parent.name.removeprefix("offline-")):
        if any(record.run.project == project for record in RunFile(path).new_records() if record.HasField("run")):
            yield RunFile(path)


class WandbSession:
    """One run of wandb after the other: each attempt is one, with the same id."""

    def __init__(self) -> None:
        self._run: wandb.Run | None = None
        self._file: RunFile | None = None
        self._patience_seconds = 0.0
        #: What the files have, by wandb's own steps.
        self._rows: dict[int, dict[str, Any]] = {}

    def history(self, *, folder: str, project: str, run_id: str) -> dict[str, Any]:
        """Return the history in the files of a run: the fields of a :class:`TrackerHistory`."""
        found = TrackerHistory()
        for file in run_files(Path(folder), project=project, run_id=run_id):
            for row in rows_of(file.new_records()):
                found.add(row.number, step=row.values.get("host/step", 0), names=row.values)
                self._rows[row.number] = row.values
        return attrs.asdict(found)

    def begin(
        self,
        *,
        folder: str,
        project: str,
        run_id: str,
        seq: int,
        mode: Any,
        tags: Sequence[str],
        base_url: str | None,
        api_key: str | None,
        patience_seconds: float,
        **what: Any,
    ) -> int:
        """Begin or resume the run; a server is sent the rows of the files that it lacks.

        :param seq: The event that it is begun for.
        :return: The last event that the run has a row of, as far as the server knows; 0 offline.
        :raises TransientError: The server cannot be reached.
        :raises FatalError: It refuses this user or the project.
        """
        self._patience_seconds = patience_seconds
        given: Mapping[str, Any] = {"base_url": base_url, "api_key": api_key}
        settings = wandb.Settings(
            **_QUIET,
            **{name: value for name, value in given.items() if value is not None},
            allow_val_change=True,  # a job that is resumed with more steps
            init_timeout=patience_seconds,
            finish_timeout=patience_seconds,
            finish_timeout_raises=True,
            x_sync_dir_suffix=f"{seq}-{os.getpid()}",  # names of folders are to the second
            x_transaction_log_flush_interval=_FLUSH_SECONDS,
        )
        Path(folder).mkdir(parents=True, exist_ok=True)  # or else wandb takes a temporary one
        try:
            run = wandb.init(
                id=run_id,
                project=project,
                dir=folder,
                mode=mode,
                tags=list(tags),
                resume="allow",
                reinit="create_new",
                settings=settings,
                **what,
            )
        except (UsageError, CommError) as error:
            raise _explained(error) from error
        run.define_metric("host/step", hidden=True)
        run.define_metric("*", step_metric="host/step")
        self._run, self._file = run, RunFile(Path(run.settings.sync_file))
        if mode == "offline":
            return 0
        at_server = max(run.starting_step - 1, 0)
        missing = sorted(number for number in self._rows if number > at_server)
        for number in missing:
            self._log({name: value for name, value in self._rows[number].items() if name not in _OF_WANDB}, number)
        if missing:
            self._wait(missing[-1])
        self._rows.clear()
        return max([at_server, *missing])

    def log(self, *, row: Mapping[str, Any], seq: int, time_ms: int) -> None:
        """Add a row to the history.

        :raises TransientError: It does not come into the file.
        """
        self._log({**row, "_timestamp": time_ms / 1000}, seq)
        self._wait(seq)

    def _log(self, row: dict[str, Any], number: int) -> None:
        assert self._run is not None
        self._run.log(row, step=number, commit=True)

    def _wait(self, number: int) -> None:
        assert self._file is not None
        end = time.monotonic() + self._patience_seconds
        while not any(written.number == number for written in rows_of(self._file.new_records())):
            if time.monotonic() > end:
                raise TransientError("wandb does not write its file")
            time.sleep(_FLUSH_SECONDS)

    def finish(self, *, exit_code: int, is_preempted: bool) -> None:
        """End the run, for now.

        :raises TransientError: The server has not taken everything in time.
        """
        run, self._run = self._run, None
        assert run is not None
        if is_preempted:
            run.mark_preempting()
        try:
            run.finish(exit_code=exit_code)
        except TimeoutError as error:
            folder = Path(run.settings.sync_dir)
            raise TransientError(
                "the server of wandb has not taken everything; wandb's file has it",
                hint=f"send the rest with `hostcore replay`, or with `wandb sync {folder}`",
            ) from error

    def end(self) -> None:
        """Finish a run whose supervisor has died, and end wandb's service."""
        wandb.teardown(exit_code=1)


def _explained(error: Exception) -> Exception:
    """Classify an error of wandb at the begin of a run, with a hint."""
    said = f"wandb: {error}"
    if isinstance(error, AuthenticationError | UsageError):
        return FatalError(said, hint='check api_key and base_url in the reporter\'s settings, or set "mode": "offline"')
    if _REFUSED.search(str(error)):
        return FatalError(said, hint="check project, entity, api_key and base_url in the reporter's settings")
    return TransientError(said)


if __name__ == "__main__":
    serve(WandbSession())
