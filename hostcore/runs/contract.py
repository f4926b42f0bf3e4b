"""The file that a worker is started with: the versioned contract between the supervisor's process and the worker's."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, from_document, read_document, write_document
from hostcore_hookspecs.errors import HostcoreError

CONTRACT_VERSION = "v1"
#: Evaluate the test data, or else the validation data: only the worker knows what the trainer brings.
EITHER = "either"


class InvalidContract(HostcoreError):
    """A contract file that this worker cannot follow."""

    code = "contract.invalid"


@attrs.frozen(kw_only=True)
class WorkerContract:
    """Everything that a worker needs to know, beside torchrun's environment variables. Paths are absolute."""

    #: An incompatible change of shape has a new version; readers refuse a version that they do not know.
    contract_version: str = CONTRACT_VERSION
    #: The trainer as the job names it: a registered name, or ``module:symbol``.
    trainer_plugin: str
    #: The run record (``config/run.json``), or a plain job file.
    job_spec_path: str
    #: An Arrow IPC file or stream that another process has written: the training data, in place of those that the job
    #: names. Empty: the worker reads what the job names. The host writes it for a job whose data is one such file.
    arrow_ipc_path: str = ""
    checkpoints_dir: str
    samples_dir: str
    #: The rank's own event log, which the worker appends to.
    events_path: str
    #: The folder of the run. In a file without it, as version 1 began, it is the one of ``events_path``.
    run_dir: str
    attempt: int = 1
    #: The newest attempt's number decides who may commit checkpoints: the folder of claims.
    attempts_dir: str = ""
    #: A checkpoint of another run to start from, while this one has none: its record or its folder; empty for none.
    start_from: str = ""
    #: Whether to refuse to start without a checkpoint.
    must_resume: bool = False
    #: ``validation``, ``test`` or ``either``: evaluate ``start_from``, which may be a folder of checkpoints here, and
    #: nothing else. Empty: train.
    evaluate: str = ""
    #: The fetched ``inputs`` and ``weights`` of the job: absolute paths by name, for ``ctx.model_handles``.
    inputs: Mapping[str, str] = attrs.field(factory=dict)
    #: What the supervisor calls the GPUs that the worker sees: ``cuda:3`` for its ``cuda:0``. Empty: the same.
    devices: Sequence[str] = ()
    #: Whether the job is only checked: the worker reports its findings, and is ended.
    only_check: bool = False
    #: The folder that the run would have, of a job that is only checked: no setting may name its files. Empty: run_dir.
    checked_run_dir: str = ""
    #: The Python that the worker runs in, absolute; empty: the supervisor's.
    python: str = ""
    #: The Python of the programs that the worker starts, absolute: its folder comes first on their PATH. Empty: none.
    programs_python: str = ""
    #: Where to write down every call of a hook or of the trainer; empty: nowhere.
    trace_path: str = ""
    #: Whether the machine of this rank does not see rank 0's run directory: ``run_dir`` and what lies in it are then of
    #: this machine alone, and what the ranks need of each other's files goes through their process group.
    apart: bool = False

    @property
    def has_environment(self) -> bool:
        """Return whether the job has an environment of its own, which each machine has in a place of its own."""
        return bool(self.python or self.programs_python)

    @property
    def is_supervised(self) -> bool:
        """Return True if a supervisor claims attempts in the run directory; False for a worker alone."""
        return bool(self.attempts_dir) and Path(self.attempts_dir).is_dir()

    def write(self, path: Path) -> None:
        """Write the contract file."""
        write_document(path, attrs.asdict(self))

    @classmethod
    def read(cls, path: Path) -> "WorkerContract":
        """Read a contract file.

        :raises InvalidContract: When the version is unknown, or a field is missing or not what it should be.
        """
        try:
            found = read_document(path)
        except FileNotFoundError as error:
            raise InvalidContract("the contract file does not exist", file=str(path)) from error
        version = found.get("contract_version")
        if version != CONTRACT_VERSION:
            raise InvalidContract(
                f"contract_version is {version!r}; this worker follows {CONTRACT_VERSION!r}",
                pointer="/contract_version",
                file=str(path),
                hint="supervisor and worker must come from compatible versions of hostcore",
            )
        if "run_dir" not in found:
            found |= _around(found.get("events_path"))
        try:
            return from_document(cls, found, file=path)
        except CorruptDocument as error:
            raise InvalidContract(error.message, pointer=error.pointer, file=str(path)) from None


def artifact_folders(directory: RunDirectory, attempt: int) -> tuple[Path, Path]:
    """Return the folders of an attempt's checkpoints and samples, which its environment may have set.

    A folder inside the run directory is the one inside its present place.
    """
    try:
        contract = WorkerContract.read(directory.contract(attempt, 0))
    except InvalidContract:  # there is none yet, or it was made by another version
        return directory.checkpoints, directory.samples
    folders = (Path(contract.checkpoints_dir), Path(contract.samples_dir))
    checkpoints, samples = (
        directory.path / folder.relative_to(contract.run_dir) if folder.is_relative_to(contract.run_dir) else folder
        for folder in folders
    )
    return checkpoints, samples


def _around(events_path: Any) -> dict[str, str]:
    """Return the folders around the event log, for a contract with the seven fields of version 1 alone."""
    if not isinstance(events_path, str):
        return {}
    directory = RunDirectory(Path(events_path).parent)
    return {"run_dir": str(directory.path), "attempts_dir": str(directory.attempts)}
