"""The ledger survives its writer, and has one writer at a time."""

import json
from pathlib import Path

import pytest
from uploading import Folder, destination

from hostcore.supervisor.delivery.ledger import Ledger, LedgerBusy
from hostcore.supervisor.delivery.units import Unit, UnitFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "uploads.jsonl"


def unit(path: str, sha256: str = "a" * 64) -> Unit:
    file = UnitFile(kind="config", path=Path("/nowhere"), relative_path=path, size=3, sha256=sha256)
    return Unit(kind="document", name=path, version="", files=(file,))


def note(ledger: Ledger, *units: Unit) -> None:
    to = destination(Folder(Path("/nowhere")))
    for one in units:
        ledger.note(to, one, one.files[0], uri="s3://there")


def test_the_newest_lines_are_known_to_the_next_process_and_one_holds_it_at_a_time(path: Path) -> None:
    path.write_bytes(b'{"something": "new"}\nnot json\n[]\n7\n')  # says nothing to this version
    ledger = Ledger(path, attempt=1)
    with pytest.raises(LedgerBusy):
        Ledger(path, attempt=1)
    note(ledger, unit("a", "1" * 64), unit("a", "2" * 64), unit("b"))
    ledger.close()
    closed = path.read_bytes()
    note(ledger, unit("c"))
    assert path.read_bytes() == closed, "after the end nothing is written"
    again = Ledger(path, attempt=2)
    assert again.knows_all("folder", unit("b"))
    assert again.knows_all("folder", unit("a", "2" * 64))
    assert not again.knows_all("folder", unit("a", "1" * 64)), "something else lies there now"
    assert not again.knows_all("folder", unit("c"))
    assert not again.knows_all("elsewhere", unit("b"))
    again.close()


def test_a_torn_last_line_is_dropped_wherever_it_was_torn(path: Path) -> None:
    ledger = Ledger(path, attempt=1)
    note(ledger, unit("a"), unit("b"))
    ledger.close()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        torn = Ledger(path, attempt=1)
        assert torn.knows_all("folder", unit("a"))
        assert not torn.knows_all("folder", unit("b"))
        note(torn, unit("c"))
        torn.close()
        assert [json.loads(line)["path"] for line in path.read_bytes().splitlines()] == ["a", "c"]
