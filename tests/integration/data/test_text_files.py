"""CSV and JSON files and indexes of shards: whole runs, files on a server, and files larger than memory should be."""

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import run

import hostcore
from hostcore.errors import Errors
from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_hookspecs import DataContext, HostcoreError, InvalidData

NUM_ROWS = 600


@attrs.frozen
class Runs:
    """Runs in this process, on data in a folder, of the trainer that keeps its rows."""

    folder: Path
    rows: dict[str, list[list[dict[str, Any]]]]

    def run(self, run_id: str, max_steps: int, **dataset: Any) -> list[dict[str, Any]]:
        """Run a job or go on with it, and return all rows that its run was trained on, in order."""
        shuffled = {"batch_size": 40, "shuffle": True, **dataset}
        job = {"trainer": "row_keeper:Trainer", "run_id": run_id, "terminal": False, "device": "cpu"}
        path = self.folder / "job.json"
        path.write_text(json.dumps({**job, "max_steps": max_steps, "dataset": shuffled}))
        assert hostcore.run(path).step == max_steps
        return [row for step in self.rows[run_id] for row in step]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("HOSTCORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import row_keeper

    yield Runs(tmp_path, row_keeper.ROWS)
    sys.modules.pop("row_keeper")


def write_csv(folder: Path) -> dict[str, Any]:
    """Several files, so that there are several shards."""
    for part in range(6):
        rows = (f'{n},"word\n{n}"\r\n' for n in range(100 * part, 100 * part + 100))
        (folder / f"{part}.csv").write_text("n,t\r\n" + "".join(rows), newline="")
    return {"source": "csv", "paths": "*.csv"}


def write_json(folder: Path) -> dict[str, Any]:
    for part in range(3):
        rows = expected()[100 * part : 100 * part + 100]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "array.json").write_text(json.dumps(expected()[300:], indent=1))
    return {"source": "json", "paths": ["*.jsonl", "array.json"]}


def write_shards(folder: Path) -> dict[str, Any]:
    (folder / "a.csv.gz").write_bytes(
        gzip.compress(b"n,t\n" + b"".join(b'%d,"word\n%d"\n' % (n, n) for n in range(200)))
    )
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in expected()[200:400]))
    table = pa.Table.from_pylist(expected()[400:])
    pq.write_table(table, folder / "c.parquet", row_group_size=20)
    records = [{"shard": name, "samples": 200} for name in ("a.csv.gz", "b.jsonl", "c.parquet")]
    (folder / "index.json").write_text(json.dumps({"records": records}))
    return {"source": "shards", "index": "index.json"}


def expected() -> list[dict[str, Any]]:
    return [{"n": n, "t": f"word\n{n}"} for n in range(NUM_ROWS)]


@pytest.mark.parametrize("write", [write_csv, write_json, write_shards])
def test_a_run_that_goes_on_sees_the_rows_that_one_without_a_break_sees(
    runs: Runs, write: Callable[[Path], dict[str, Any]]
) -> None:
    dataset = write(runs.folder)
    whole = runs.run(f"{write.__name__}-whole", 22, **dataset)
    runs.run(f"{write.__name__}-parts", 7, **dataset)
    assert runs.run(f"{write.__name__}-parts", 22, **dataset) == whole
    first_epoch = whole[:NUM_ROWS]
    assert sorted(first_epoch, key=lambda row: int(row["n"])) == expected()
    assert first_epoch != expected()
    assert runs.run(f"{write.__name__}-plain", 15, **dataset, shuffle=False) == expected()


def test_a_run_does_not_go_on_with_other_data(runs: Runs) -> None:
    dataset = write_csv(runs.folder)
    runs.run("changed", 3, **dataset)
    with (runs.folder / "0.csv").open("a") as file:
        file.write("1,new\r\n")
    with pytest.raises(HostcoreError, match=r"data"):
        runs.run("changed", 5, **dataset)


def test_bad_text_is_one_error_before_the_run_begins(runs: Runs) -> None:
    dataset = write_csv(runs.folder)
    with (runs.folder / "5.csv").open("a") as file:
        file.write("1,2,3\r\n")
    with pytest.raises(Errors) as raised:
        runs.run("ragged", 3, **dataset)
    (error,) = raised.value.errors
    assert (error.pointer, error.file) == ("/dataset", str(runs.folder / "5.csv"))
    assert error.message.endswith("line 202: the row has 3 fields, not 2")
    assert not (runs.folder / "runs" / "ragged").exists()


@pytest.fixture
def remote(server: Any) -> Path:
    path: Path = server.folder / "a.csv"
    path.write_text("n,t\n" + "".join(f"{n},{'word' * 20}\n" for n in range(1000)))
    return path


def open_remote(server: Any, cache: Path) -> Any:
    source = CsvSource(settings=CsvSource.Settings(paths=server.url("a.csv")))
    return source.open_dataset({}, DataContext(cache_dir=str(cache)))


def test_a_file_on_a_server_is_fetched_for_its_conversion_alone_and_watched_for_changes(
    server: Any, remote: Path, tmp_path: Path
) -> None:
    for dataset in (open_remote(server, tmp_path), open_remote(server, tmp_path)):
        found = [n for one in dataset.shards() for batch in dataset.read_shard(one, ["n"], 0) for n in batch["n"]]
        assert [n.as_py() for n in found] == list(range(1000))
        assert server.bytes_sent < 3.1 * remote.stat().st_size
    server.requests.clear()
    list(dataset.read_shard(dataset.shards()[0], None, 0))
    assert "GET" not in {method for method, _ in server.requests}
    remote.write_text(remote.read_text().replace("word", "ward"))
    with pytest.raises(InvalidData, match="changed while the run was reading it"):
        list(dataset.read_shard(dataset.shards()[0], None, 0))


def test_a_file_that_changes_while_it_is_converted_is_refused(server: Any, remote: Path, tmp_path: Path) -> None:
    class ChangesTheFile(list[tuple[str, int]]):
        def append(self, request: tuple[str, int]) -> None:
            super().append(request)
            if request[0] == "GET":
                remote.write_text("n,t\n1,x\n")

    server.requests = ChangesTheFile()
    with pytest.raises(InvalidData, match="changed while the run was reading it"):
        open_remote(server, tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


#: Reads a dataset in a process of its own, and tells what it took.
READ = """
import json, sys
from hostcore_builtin_plugins.sources.csv_source import CsvSource
from hostcore_hookspecs import DataContext, InvalidData

def memory(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))

base, rows, message = memory("VmRSS"), 0, ""
try:
    dataset = CsvSource(settings=CsvSource.Settings(paths=sys.argv[1])).open_dataset({}, DataContext())
    rows = sum(batch.num_rows for shard in dataset.shards() for batch in dataset.read_shard(shard, None, 0))
except InvalidData as error:
    message = error.message
print(json.dumps({"rows": rows, "message": message, "memory": memory("VmHWM") - base}))
"""


def read(path: Path) -> dict[str, Any]:
    done = run([sys.executable, "-c", READ, path], text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_packed_file_of_many_rows_is_read_in_little_memory(tmp_path: Path) -> None:
    line = b"1,2.5," + b"word " * 100 + b"\n"
    packed = gzip.compress(line * 20_000, compresslevel=1)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b,t\n") + packed * 40)
    done = read(tmp_path / "a.csv.gz")
    assert done["rows"] == 800_000
    assert done["memory"] < 192 << 20  # of 384 MiB of text


def test_one_line_of_two_gigabytes_is_refused_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,2\n3,"')
    os.truncate(path, 2 << 30)  # of zeros, which take no place on the disk
    done = read(path)
    assert "line 3: a record does not end within 64 MiB, which is the limit" in done["message"]
    assert done["memory"] < 640 << 20
