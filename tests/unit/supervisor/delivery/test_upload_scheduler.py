"""The scheduler of uploads, to which thousands of checkpoints may be left while nothing gets through."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from instruction_count import instructions

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.spool import Spool
from hostcore.supervisor.delivery.units import Inventory, Unit, UnitFile
from hostcore.supervisor.delivery.upload_scheduler import UploadScheduler
from hostcore.supervisor.delivery.upload_workers import UploadLimits


@pytest.fixture
def scheduler(tmp_path: Path) -> Callable[[], UploadScheduler]:
    """``scheduler()``: one without uploaders."""

    def make() -> UploadScheduler:
        return UploadScheduler(
            [],
            Inventory.of(RunDirectory(tmp_path / "a")),
            Spool(tmp_path / "spool"),
            tell=lambda _: None,
            spool_bytes=0,
            spool_seconds=0.0,
            limits=UploadLimits(),
            owed=(),
            clock=lambda: 0.0,
        )

    return make


def a_unit(number: int) -> Unit:
    name = f"checkpoints/step-{number:06d}"
    digest = hashlib.sha256(b"x").hexdigest()
    file = UnitFile(kind="checkpoint", path=Path("/x"), relative_path=f"{name}/x", size=1, sha256=digest)
    return Unit(kind="checkpoint", name=name, version="1", files=(file,), step=number, saved_ns=number)


def test_each_of_many_is_as_much_work_to_offer_as_each_of_few(scheduler: Callable[[], UploadScheduler]) -> None:
    def work(count: int) -> int:
        one, units = scheduler(), [a_unit(number) for number in range(count)]
        return instructions(lambda: [one.offer(unit) for unit in units])

    assert work(400) < 4.5 * work(100)


class Lacking:
    """An uploader to which nothing has arrived; it keeps what it is to copy."""

    def __init__(self) -> None:
        self.added: list[Unit] = []

    def lacks(self, _: Unit) -> bool:
        return True

    def add(self, unit: Unit) -> None:
        self.added.append(unit)

    def remove(self, *_: object) -> None:
        """Nothing is copied."""


@pytest.mark.parametrize(("log_bytes", "times"), [(1_000, 10), (100_000, 1)])
def test_long_logs_are_copied_less_often(tmp_path: Path, log_bytes: int, times: int) -> None:
    """As a whole: else what is copied of a log that grows would grow with its square."""
    directory, uploader, seconds = RunDirectory(tmp_path / "a"), Lacking(), 0.0
    directory.logs.mkdir(parents=True)
    directory.events.write_bytes(b"x" * (log_bytes - 1) + b"\n")
    scheduler = UploadScheduler(
        [cast(Any, uploader)],
        Inventory.of(directory),
        Spool(directory.spool),
        tell=lambda _: None,
        spool_bytes=0,
        spool_seconds=0.0,
        limits=UploadLimits(log_seconds=300.0, live_seconds=60.0, live_bytes_per_second=10.0),
        owed=(),
        clock=lambda: seconds,
    )
    for number in range(10):
        seconds = number * 301.0
        with directory.events.open("ab") as log:
            log.write(b"more\n")
        scheduler.offer(attrs.evolve(a_unit(number), spooled=tmp_path))
    assert sum(unit.is_log for unit in uploader.added) == times
