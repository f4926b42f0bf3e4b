"""Data sources: rows a second through the feed, beside Parquet and beside each library itself.

The same rows for all: 16 float32 columns and an int64, in batches of 1024, in the page cache; text has the first four
columns and the int64. Parquet and Delta have row groups of 65,536; Lance, datasets and DuckDB have what they write by
default. Every measurement is a process of
its own; ways take turns within a round, which begins with another one each time. Rows are counted for ``--seconds``
after one second to warm up, over as many epochs as that takes; opening the data (for DuckDB: running the query) is
not counted, and has a column of its own. Text is opened with an empty cache, so that this is its conversion; the rate
of a first pass is that of the rows over the time to open them and to read them once.

    pip install './extensions/sources[datasets,delta,duckdb,lance]'
    python benchmarks/sources.py [--rows 2000000] [--rounds 3] [--seconds 3] [--only csv,json,parquet] [--json FILE]

=================  =============================================================================================
``NAME``           the feed as ``hostcore run`` opens it, in file order
``NAME shuffled``  the same with ``dataset.shuffle``
``NAME itself``    the library's own iteration in file order: ``ParquetFile.iter_batches``, ``LanceDataset.to_batches``,
                   ``Dataset.with_format("arrow").iter``, ``DeltaTable.to_pyarrow_dataset().to_batches``, DuckDB's
                   ``to_arrow_reader`` over the query, which runs it again for each epoch; ``pyarrow.csv.open_csv``
                   and ``pyarrow.json.read_json``, which parse again for each epoch
``NAME datasets``  text alone: ``load_dataset("csv" or "json")`` with an empty cache, then as ``datasets itself``
=================  =============================================================================================

Memory is the peak of a process over what it had when the data was open; pages of mapped files count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import results
from feed_ways import peak_memory, start_counting_memory

BATCH_ROWS, GROUP_ROWS = 1024, 65_536
TEXTS = ("csv", "json")
NAMES = ("parquet", "datasets", "delta", "duckdb", "lance", *TEXTS)
HOW = ("", " shuffled", " itself")
WARM_UP_SECONDS = 1.0


def settings_of(name: str, folder: Path) -> dict[str, Any]:
    """What a job says about the data."""
    if name == "parquet":
        return {"parquet_paths": str(folder / "rows.parquet")}
    if name in TEXTS:
        return {"paths": str(folder / f"rows.{name}")}
    if name == "duckdb":
        return {"sql": "SELECT * FROM rows", "tables": {"rows": folder / "rows.parquet"}}
    return {"path": folder / name}


def make_data(folder: Path, rows: int, names: list[str]) -> None:
    """Write the rows in all formats."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    columns = {f"f{number}": random.standard_normal(rows, dtype=np.float32) for number in range(16)}
    table = pa.table({**columns, "label": random.integers(0, 10, rows)})
    pq.write_table(table, folder / "rows.parquet", row_group_size=GROUP_ROWS)
    text = table.select(["f0", "f1", "f2", "f3", "label"])
    if "csv" in names:
        pyarrow.csv.write_csv(text, folder / "rows.csv")
    if "json" in names:
        with (folder / "rows.json").open("w") as file:
            for batch in text.to_batches(GROUP_ROWS):
                file.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())
    if not {"datasets", "delta", "lance"} & set(names):
        return
    import datasets
    import deltalake
    import lance

    datasets.disable_progress_bars()
    datasets.Dataset(table).save_to_disk(folder / "datasets")
    properties = deltalake.WriterProperties(max_row_group_size=GROUP_ROWS)
    deltalake.write_deltalake(folder / "delta", table, writer_properties=properties)
    lance.write_dataset(table, folder / "lance")


def through_feed(name: str, folder: Path, *, shuffle: bool) -> Any:
    """A function that iterates over an epoch."""
    from hostcore.job.sections import DatasetSpec
    from hostcore.plugins.installed import discover
    from hostcore.plugins.load import import_class
    from hostcore.worker.feed.feed import Cursor, dataset_feed
    from hostcore_hookspecs import DataContext

    ref = next(one for one in discover().refs if one.kind == "data_source" and one.name == name)
    owner: Any = import_class(ref, job_dir=folder)[0]
    source = owner(settings=owner.Settings(**settings_of(name, folder)))
    cache = tempfile.mkdtemp(dir=folder) if name in TEXTS else folder / "cache"
    dataset = source.open_dataset({}, DataContext(cache_dir=str(cache)))
    feed = dataset_feed(
        dataset, DatasetSpec(source=name, batch_size=BATCH_ROWS, shuffle=shuffle), seed=0, pointer="/dataset"
    )

    def epoch(number: int) -> Iterator[int]:
        stream = feed.stream(Cursor(epoch=number))
        try:
            for batch in stream:
                yield batch.num_rows
        finally:
            stream.close()

    return epoch


def by_library(name: str, folder: Path) -> Any:
    """A function that iterates over an epoch."""
    if name == "parquet":
        import pyarrow.parquet as pq

        return lambda _: (one.num_rows for one in pq.ParquetFile(folder / "rows.parquet").iter_batches(BATCH_ROWS))
    if name == "csv":
        import pyarrow.csv

        return lambda _: (one.num_rows for one in pyarrow.csv.open_csv(folder / "rows.csv"))
    if name == "json":
        import pyarrow.json

        return lambda _: iter([pyarrow.json.read_json(folder / "rows.json").num_rows])
    if name == "datasets":
        import datasets

        rows = datasets.load_from_disk(folder / "datasets").with_format("arrow")
        return lambda _: (one.num_rows for one in rows.iter(BATCH_ROWS))
    if name == "delta":
        import deltalake

        table = deltalake.DeltaTable(folder / "delta").to_pyarrow_dataset()
        return lambda _: (one.num_rows for one in table.to_batches(batch_size=BATCH_ROWS))
    if name == "lance":
        import lance

        found = lance.dataset(folder / "lance")
        return lambda _: (one.num_rows for one in found.to_batches(batch_size=BATCH_ROWS))
    import duckdb

    query = f"SELECT * FROM read_parquet('{folder / 'rows.parquet'}')"
    return lambda _: (one.num_rows for one in duckdb.sql(query).to_arrow_reader(BATCH_ROWS))


def text_by_datasets(name: str, folder: Path) -> Any:
    """A function that iterates over an epoch."""
    import datasets

    datasets.disable_progress_bars()
    cache, files = tempfile.mkdtemp(dir=folder), str(folder / f"rows.{name}")
    rows = datasets.load_dataset(name, data_files=files, split="train", cache_dir=cache).with_format("arrow")
    return lambda _: (one.num_rows for one in rows.iter(BATCH_ROWS))


def measure(way: str, folder: Path, seconds: float) -> dict[str, float]:
    """In this process."""
    name, _, how = way.partition(" ")
    begun = time.perf_counter()
    if how == "datasets":
        epoch = text_by_datasets(name, folder)
    else:
        epoch = by_library(name, folder) if how == "itself" else through_feed(name, folder, shuffle=how == "shuffled")
    opened = time.perf_counter() - begun
    before = start_counting_memory()
    begun, counted_from, rows, number = time.perf_counter(), None, 0, 0
    while True:
        for batch_rows in epoch(number):
            now = time.perf_counter()
            if counted_from is None:
                counted_from = now if now - begun >= WARM_UP_SECONDS else None
                continue
            rows += batch_rows
            if now - counted_from >= seconds:
                peak = peak_memory() - before
                return {"rows_per_second": rows / (now - counted_from), "open_seconds": opened, "peak_bytes": peak}
        number += 1


def run(way: str, folder: Path, seconds: float) -> dict[str, float]:
    """Measure in a new process."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, __file__, "--way", way, "--dir", str(folder), "--seconds", str(seconds)]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way}: {answer['rows_per_second']:,.0f} rows/s", file=sys.stderr)
    return answer


def compare(options: argparse.Namespace, folder: Path) -> None:
    names = [name for name in NAMES if name in options.only.split(",")]
    ways = [f"{name}{how}" for name in names for how in (*HOW, *((" datasets",) if name in TEXTS else ()))]
    make_data(folder, options.rows, names)
    if "duckdb" in names:
        run("duckdb", folder, 0.1)  # runs the query
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(options.rounds):
        turn = number % len(ways)
        for way in [*ways[turn:], *ways[:turn]]:
            taken[way].append(run(way, folder, options.seconds))
    rates = {way: [one["rows_per_second"] for one in found] for way, found in taken.items()}
    peaks = {f"{way}, peak": [one["peak_bytes"] for one in found] for way, found in taken.items()}
    results.write(
        options.json,
        "sources",
        {**results.rows("rows/s", rates, less_is_better=False), **results.rows("bytes", peaks)},
        rows=options.rows,
    )
    print(f"{options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s")
    print("| way | rows/s | min..max | s to open | rows/s of a first pass | MB |\n|---|---|---|---|---|---|")
    for way, found in taken.items():
        rate = statistics.median(rates[way])
        opened = statistics.median(one["open_seconds"] for one in found)
        peak = statistics.median(one["peak_bytes"] for one in found) / 1e6
        first = options.rows / (opened + options.rows / rate)
        spread = f"{min(rates[way]):,.0f}..{max(rates[way]):,.0f}"
        print(f"| {way} | {rate:,.0f} | {spread} | {opened:.2f} | {first:,.0f} | {peak:.0f} |")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rows", type=int, default=2_000_000)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    ask.add_argument("--only", default=",".join(NAMES), help="comma separated")
    ask.add_argument("--dir", type=Path, help=argparse.SUPPRESS)
    ask.add_argument("--way", help=argparse.SUPPRESS)
    results.add_option(ask)
    options = ask.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, options.dir, options.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))


if __name__ == "__main__":
    main()
