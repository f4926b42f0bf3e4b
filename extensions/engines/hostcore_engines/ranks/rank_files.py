"""The files of a rank whose machine does not see the run directory of rank 0, and how they come there.

::

    rank 0                                                 the supervisor of such a rank
    "start" with the contract and the run's record   ────▶ NodeFolder: both in a folder of its machine, with its paths
                                                     ◀──── "wrote": what was appended to a file, from which offset on
    Received: writes it at that offset; "took"       ────▶ Sender: the next piece

So the run directory of rank 0 has the logs of all ranks, as it has them where all machines see it. One piece is under
way at a time: rank 0 is never flooded, and what waits lies in the file that it was written to.
"""

import base64
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.runs.contract import WorkerContract
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import write_document
from hostcore_builtin_plugins.processes import place_name

_PIECE_BYTES: Final = 256 << 10


def files_of(contract: WorkerContract, output: Path) -> dict[str, Path]:
    """The files that a rank's worker appends to, by the names that messages have for them; events come first."""
    files = {"events": Path(contract.events_path), "output": output}
    return {**files, "hooks": Path(contract.trace_path)} if contract.trace_path else files


class NodeFolder:
    """A folder for the ranks of this machine, for one start of them; laid out like a run directory.

    Its name is hidden from searches for runs: no run is resumed from it, or is opened there.

    :param folder: The hidden folder beside the runs of this machine.
    :param name: That of the launch, the same for all its starts.
    :param start: What rank 0 calls this start.
    """

    def __init__(self, folder: Path, name: str, start: str) -> None:
        # The place is part of it: machines may share a folder with each other, and not with rank 0.
        prefix, host = f"{name[:100]}.", place_name()
        self.path = folder / f"{prefix}{start}.{host}"
        for left in folder.glob(f"{prefix}*.{host}"):  # by a start that was killed
            if left != self.path and left.is_dir():
                shutil.rmtree(left, ignore_errors=True)

    def prepare(
        self, contract: Mapping[str, Any], record: Mapping[str, Any], *, rank: int
    ) -> tuple[WorkerContract, Path, Path]:
        """Make what the worker of a rank starts with.

        :param contract: As rank 0 has written it, with the paths of its machine.
        :param record: Of the run.
        :return: The contract for this machine; the file for it, not yet written; and that for the worker's output.
        :raises InvalidContract: When the contract is none that this version follows.
        """
        directory = RunDirectory(self.path / Path(str(contract.get("run_dir"))).name)
        folders = (directory.record.parent, directory.attempts, directory.logs, directory.checkpoints)
        for folder in (*folders, directory.samples):
            folder.mkdir(parents=True, exist_ok=True)
        write_document(directory.record, record)
        attempt = contract.get("attempt", 1)
        path = directory.contract(attempt, rank)
        write_document(path, contract)
        told = WorkerContract.read(path)
        local = attrs.evolve(
            told,
            job_spec_path=str(directory.record),
            checkpoints_dir=str(directory.checkpoints),
            samples_dir=str(directory.samples),
            events_path=str(directory.rank_events(attempt, rank)),
            run_dir=str(directory.path),
            attempts_dir=str(directory.attempts),
            trace_path=str(directory.rank_hooks(attempt, rank)) if told.trace_path else "",
            apart=True,
        )
        return local, path, directory.rank_output(attempt, rank)

    def remove(self) -> None:
        """Remove it, once no worker of this machine runs any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # there is more in it
            self.path.parent.rmdir()


class Sender:
    """Sends what is appended to some files, a piece at a time.

    :param files: By name; the first that has something new is sent first.
    :param send: Sends a message.
    """

    def __init__(self, files: Mapping[str, Path], send: Callable[[str, Any], None]) -> None:
        self._files = files
        self._send = send
        self._offsets = dict.fromkeys(files, 0)
        self._under_way = False

    def send(self) -> bool:
        """Send the next piece, unless the last one has not arrived yet.

        :return: Whether everything that there is has arrived.
        """
        if self._under_way:
            return False
        for name, path in self._files.items():
            if piece := _read(path, self._offsets[name]):
                content = base64.b64encode(piece).decode()
                self._send("wrote", {"file": name, "offset": self._offsets[name], "content": content})
                self._offsets[name] += len(piece)
                self._under_way = True
                return False
        return True

    def took(self) -> None:
        """The piece has arrived."""
        self._under_way = False


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_PIECE_BYTES)
    except FileNotFoundError:
        return b""  # not begun yet


@attrs.frozen
class Received:
    """Place of another machine's files in rank 0's run directory."""

    _files: Mapping[str, Path]

    def write(self, content: Mapping[str, Any]) -> None:
        """Write a piece in its place: a second time changes nothing.

        :raises OSError: When the run directory cannot be written; nothing happens if it has been removed.
        """
        piece, offset = memoryview(base64.b64decode(content["content"])), content["offset"]
        with suppress(FileNotFoundError):  # the attempt was withdrawn
            descriptor = os.open(self._files[content["file"]], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                while piece:
                    written = os.pwrite(descriptor, piece, offset)
                    piece, offset = piece[written:], offset + written
            finally:
                os.close(descriptor)
