"""Fixtures for the plugins that ship with hostcore."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Payload


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[..., Path]:
    """Writes numbered rows: ``write_parquet("a.parquet", rows=range(10), group=4)``."""

    def write(name: str, *, rows: range = range(10), group: int = 4, table: pa.Table | None = None) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if table is None:
            table = pa.table({"n": pa.array(rows, pa.int64()), "text": [f"row {i}" for i in rows]})
        pq.write_table(table, path, row_group_size=group, write_page_checksum=True)
        return path

    return write


@pytest.fixture
def unreadable(tmp_path: Path) -> Iterator[Callable[[Path], AbstractContextManager[Path]]]:
    """Copies a file to where this process may not read it, also when the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="hostcore-test-"))
    folder.chmod(0o755)

    @contextmanager
    def without_rights(path: Path) -> Iterator[Path]:
        copy = folder / path.name
        shutil.copyfile(path, copy)
        copy.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield copy
        finally:
            os.seteuid(user)

    yield without_rights
    shutil.rmtree(folder)


@pytest.fixture
def event() -> Callable[..., Event]:
    """Makes events with consecutive ``seq``: ``event(Metrics(…), step=40, seconds=1.5)``."""
    seq = 0

    def make(
        payload: Payload,
        *,
        step: int | None = None,
        seconds: float = 0,
        run_id: str = "flights-1",
        attempt: int = 1,
    ) -> Event:
        nonlocal seq
        seq += 1
        time_ms = 1_700_000_000_000 + round(seconds * 1000)
        return Event(seq=seq, time_ms=time_ms, run_id=run_id, attempt=attempt, step=step, epoch=0, payload=payload)

    return make
