"""Data feed: rows a second from a Parquet file to tensors, and the memory that takes; beside peers, in one run.

One file: 32 float32 columns and an int64 label, row groups of 65,536, snappy, in the page cache. Batches have 1024
rows, of which two columns become tensors. Every measurement is a process of its own. Ways take turns within a round,
which begins with another one each time; medians are printed, and ratios are taken within a round. Rows are counted for
``--seconds`` after one second to warm up, over as many epochs as that takes; opening the data is not counted.

    pip install datasets
    python benchmarks/feed.py [--rows 2000000] [--rounds 5] [--seconds 5] [--only limit,hostcore] [--tensors all]
                              [--json FILE]

=====================  =============================================================================================
``limit``              ``pyarrow.parquet.ParquetFile.iter_batches(65536)`` in one thread; no tensors
``hostcore``           the feed as ``hostcore run`` opens it; ``to_tensors`` for the columns
``hf``                 Hugging Face datasets, map-style, ``with_format("torch")``, ``iter(batch_size=1024)``; its copy
                       of the data as Arrow is written before. It reads only the columns that become tensors
``loader``             ``torch.utils.data.DataLoader(batch_size=1024)`` over a dataset that gives single rows out of two
                       tensors in memory: the tutorial's
``…_shuffled``         the same with its own shuffling
=====================  =============================================================================================

Memory is the peak of a process over what it had after its imports; pages of mapped files count. Each way also runs once
over a file with twice the rows.

A second table is about batches of 32 rows and hostcore alone, reading all columns or two: how long a batch takes if
nothing else is done, and what the feed adds to a training step (Linear 16 to 1, SGD, one thread), over the same steps
without a feed in the same process; long stretches of both take turns.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import results
from feed_ways import BATCH_ROWS, COLUMNS, GROUP_ROWS, NAMES, SMALL_BATCH_ROWS, WAYS, Work


def run(work: Work) -> dict[str, float]:
    """Measure in a new process.

    :raises SystemExit: With what it wrote, when it failed.
    """
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, str(Path(__file__).with_name("feed_ways.py")), json.dumps(attrs.asdict(work))]
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{work.way} failed:\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def make_file(path: Path, rows: int) -> str:
    """Write the data, unless it is there, and bring it into the page cache."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        random = np.random.default_rng(0)
        schema = pa.schema([*((name, pa.float32()) for name in NAMES), ("label", pa.int64())])
        unfinished = path.with_suffix(".unfinished")
        with pq.ParquetWriter(unfinished, schema, use_dictionary=["label"]) as file:
            for start in range(0, rows, GROUP_ROWS):
                size = min(GROUP_ROWS, rows - start)
                columns = [random.standard_normal(size, dtype=np.float32) for _ in NAMES]
                file.write_table(pa.table([*columns, random.integers(0, 10, size)], schema=schema), GROUP_ROWS)
        unfinished.rename(path)
    with path.open("rb") as content:
        while content.read(1 << 24):
            pass
    return str(path)


def in_turns(works: Sequence[Work], rounds: int) -> list[list[dict[str, float]]]:
    """What is measured of all works by round; each round begins with another one."""
    taken = []
    for number in range(rounds):
        turn = number % max(1, len(works))
        of_round = {}
        for place in [*range(turn, len(works)), *range(turn)]:
            work = works[place]
            of_round[place] = answer = run(work)
            rate = answer["rows_per_second"]
            print(f"round {number + 1}: {work.way}, batches of {work.batch_rows}: {rate:,.0f} rows/s", file=sys.stderr)
        taken.append([of_round[place] for place in range(len(works))])
    return taken


def column(names: Sequence[str], taken: list[list[dict[str, float]]], key: str) -> dict[str, list[float]]:
    """One figure of each way, by round."""
    return {name: [of_round[place][key] for of_round in taken] for place, name in enumerate(names)}


def name_of(work: Work) -> str:
    """A row of the second table."""
    return f"{work.way}, {len(work.columns) or len(COLUMNS['all'])} columns{', to_tensors' * bool(work.tensors)}"


def table_of_rates(ways: Sequence[str], taken: list[list[dict[str, float]]], twice: list[dict[str, float]]) -> str:
    lines = [
        "| way | rows/s | of the limit | min..max | cores | MB | MB, twice the rows |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, way in enumerate(ways):
        of_way = [of_round[place] for of_round in taken]
        rate, cores, peak = (
            statistics.median(one[key] for one in of_way) for key in ("rows_per_second", "cores", "peak_bytes")
        )
        ratios = [of_round[place]["rows_per_second"] / of_round[0]["rows_per_second"] for of_round in taken]
        shown = f"{statistics.median(ratios):.3g} | {min(ratios):.3g}..{max(ratios):.3g}"
        memory = f"{peak / 1e6:.0f} | {twice[place]['peak_bytes'] / 1e6:.0f}"
        lines.append(f"| {way} | {rate:,.0f} | {shown} | {cores:.1f} | {memory} |")
    return "\n".join(lines)


def table_of_small_batches(works: Sequence[Work], taken: list[list[dict[str, float]]]) -> str:
    step = statistics.median(one["step_microseconds"] for of_round in taken for one in of_round)
    lines = [
        f"| batches of 32, beside steps of {step:.0f} µs | µs a batch, alone | µs added to a step | min..max |",
        "|---|---|---|---|",
    ]
    for place, work in enumerate(works):
        alone = [SMALL_BATCH_ROWS / of_round[place]["rows_per_second"] * 1e6 for of_round in taken]
        added = [of_round[place]["added_microseconds"] for of_round in taken]
        shown = f"{statistics.median(added):.1f} | {min(added):.1f}..{max(added):.1f}"
        lines.append(f"| {name_of(work)} | {statistics.median(alone):.1f} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rows", type=int, default=2_000_000)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    ask.add_argument("--only", default=",".join(WAYS), help="comma separated; the limit is always measured")
    ask.add_argument("--tensors", choices=("two", "all"), default="two", help="the columns that become tensors")
    ask.add_argument("--dir", type=Path, help="where the data is made and kept (else a temporary folder)")
    results.add_option(ask)
    options = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, options.dir or Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {"limit", *options.only.split(",")}
    if unknown := wanted - WAYS.keys():
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(WAYS)}")
    missing = [way for way in WAYS if way in wanted and way.startswith("hf") and not installed("datasets")]
    ways = [way for way in WAYS if way in wanted and way not in missing]
    once, twice = (
        [
            Work(way=way, file=file, batch_rows=BATCH_ROWS, tensors=COLUMNS[options.tensors], seconds=options.seconds)
            for way in ways
        ]
        for file in (make_file(folder / f"{rows}.parquet", rows) for rows in (options.rows, 2 * options.rows))
    )
    small = [
        attrs.evolve(work, batch_rows=SMALL_BATCH_ROWS, columns=columns, tensors=tensors, beside_steps=True)
        for work in once
        if work.way.startswith("hostcore")
        for columns, tensors in (([], []), (COLUMNS["two"], []), (COLUMNS["two"], COLUMNS["two"]))
    ]
    for work in (*once, *twice):
        if work.way.startswith("hf"):
            run(attrs.evolve(work, seconds=0))  # converts the file
    rates = in_turns(once, options.rounds)
    memory = in_turns(twice, 1)[0]
    small_rates = in_turns(small, options.rounds)
    rows = {
        **results.rows("rows/s", column(ways, rates, "rows_per_second"), less_is_better=False),
        **results.rows("bytes", {f"{way}, peak": values for way, values in column(ways, rates, "peak_bytes").items()}),
        **results.rows(
            "µs", column([f"{name_of(work)}, added to a step" for work in small], small_rates, "added_microseconds")
        ),
    }
    results.write(options.json, "feed", rows, rows=options.rows, tensors=options.tensors)
    what = f"{options.tensors} columns to tensors"
    print(f"{options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s, {what}")
    print(table_of_rates(ways, rates, memory))
    for way in missing:
        print(f"| {way} | not installed here | | | | | |")
    if small:
        print(f"\n{table_of_small_batches(small, small_rates)}")


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


if __name__ == "__main__":
    main()
