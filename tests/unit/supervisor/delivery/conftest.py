"""The log of a run and deliveries from it; run directories, folders as destinations, and uploads driven by hand."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.events.merger import EventLog
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.artifacts_source import UploadLimits
from hostcore.supervisor.delivery.units import Inventory
from hostcore.supervisor.delivery.uploads import Uploads

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that these tests share

from desk import Desk
from uploading import QUICK, Driven, Folder, Run, context, destination


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    directory = RunDirectory(tmp_path / "runs" / "r")
    directory.make()
    log = EventLog(directory.events, run_id="r", attempt=1)
    desk = Desk(directory, log)
    yield desk
    for one in desk.started:
        one.abandon()
    desk.log.close()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    directory = RunDirectory(tmp_path / "runs" / "a")
    directory.make()
    directory.record.write_text('{"job": {"trainer": "t"}}')
    (directory.attempts / "1.json").write_text('{"attempt": 1}')
    directory.events.write_bytes(b'{"seq":1}\n')
    return Run(directory)


@pytest.fixture
def mirror(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "mirror")


@pytest.fixture
def driven(run: Run) -> Iterator[Callable[..., Driven]]:
    """``driven(mirror)``: uploads that have started; abandoned when the test is over."""
    made: list[Uploads] = []

    def drive(*folders: Folder, started: bool = True, limits: UploadLimits = QUICK, **options: Any) -> Driven:
        required = options.pop("required", False)
        names = ["folder", *(f"folder.{number}" for number in range(2, 1 + len(folders)))][: len(folders)]
        folder = {key: options.pop(f"{key}_dir", None) for key in ("checkpoints", "samples")}
        spool = {key: options.pop(key) for key in ("spool_bytes", "spool_seconds") if key in options}
        uploads = Uploads(
            [destination(folder, name=name, required=required) for name, folder in zip(names, folders, strict=True)],
            Inventory.of(run.directory, **folder),
            context(run),
            limits=attrs.evolve(limits, **spool),
            **options,
        )
        made.append(uploads)
        if started:
            uploads.start()
        return Driven(uploads, run)

    yield drive
    for uploads in made:
        uploads.abandon()
