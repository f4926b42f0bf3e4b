"""Thousands of checkpoints that wait in an outage: each is as much work as if there were few."""

import hashlib
from pathlib import Path

from instruction_count import instructions

from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.artifacts_source import ArtifactSource, UploadLimits
from hostcore.supervisor.delivery.ledger import Ledger
from hostcore.supervisor.delivery.subscription import Destination
from hostcore.supervisor.delivery.units import Inventory, Unit, UnitFile
from hostcore.supervisor.delivery.upload_scheduler import UploadScheduler
from hostcore_hookspecs.uploader import UploadReceipt


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
            emit=lambda _: None,
            limits=UploadLimits(),
            owed=(),
            clock=lambda: 0.0,
        )
        return instructions(lambda: [scheduler.offer(unit) for unit in units])

    assert work(400) < 4.5 * work(100)


def test_to_take(tmp_path: Path) -> None:
    receipt = UploadReceipt(uri="there", size=1)
    destination = Destination(label="d", name="d", upload_artifact=lambda _: receipt)

    def fill_and_empty(source: ArtifactSource, units: list[Unit]) -> None:
        for unit in units:
            source.add(unit)
        while (item := source.next(0.0, busy=(), probing=False)) is not None:
            source.taken(item, receipt)
        assert source.is_complete

    def work(count: int) -> int:
        source = ArtifactSource(destination, when_done=lambda _: None, limits=UploadLimits(), emit=lambda _: None)
        source.hold(Ledger(tmp_path / f"{count}.jsonl", attempt=1))
        units = [a_unit(number) for number in range(count)]
        return instructions(lambda: fill_and_empty(source, units))

    assert work(400) < 4.5 * work(100)
