"""Thousands of checkpoints that wait in an outage: each is as much work as if there were few."""

import hashlib
from pathlib import Path

from instruction_count import instructions

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.spool import Spool
from hostcore.supervisor.delivery.units import Inventory, Unit, UnitFile
from hostcore.supervisor.delivery.upload_queue import Task, UploadQueue
from hostcore.supervisor.delivery.upload_scheduler import UploadScheduler
from hostcore.supervisor.delivery.upload_workers import UploadLimits


def a_unit(number: int) -> Unit:
    name = f"checkpoints/step-{number:06d}"
    digest = hashlib.sha256(b"x").hexdigest()
    file = UnitFile(kind="checkpoint", path=Path("/x"), relative_path=f"{name}/x", size=1, sha256=digest)
    return Unit(kind="checkpoint", name=name, version="1", files=(file,), step=number, saved_ns=number)


def test_to_offer(tmp_path: Path) -> None:
    def work(count: int) -> int:
        units = [a_unit(number) for number in range(count)]
        scheduler = UploadScheduler(
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
        return instructions(lambda: [scheduler.offer(unit) for unit in units])

    assert work(400) < 4.5 * work(100)


def test_to_take() -> None:
    def fill_and_empty(queue: UploadQueue, tasks: list[Task]) -> None:
        for task in tasks:
            queue.add(task)
        while (found := queue.next(0.0, busy=set(), probing=False)) is not None:
            found[0].begin(found[1])
            queue.remove(found[0])

    def work(count: int) -> int:
        tasks = [Task(unit=unit, left=list(unit.files), seal=None) for unit in map(a_unit, range(count))]
        return instructions(lambda: fill_and_empty(UploadQueue(), tasks))

    assert work(400) < 4.5 * work(100)
