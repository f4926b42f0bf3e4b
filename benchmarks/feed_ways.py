"""What a process of ``feed.py`` does: one way to take batches from a Parquet file, measured.

Started as ``python feed_ways.py '{"way": "hostcore", ...}'``, with the fields of a Work; prints one line of JSON.
"""

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, count, islice, repeat
from pathlib import Path
from typing import Any

import attrs

FEATURES, GROUP_ROWS, BATCH_ROWS, SMALL_BATCH_ROWS = 32, 65_536, 1024, 32
NAMES = [f"f{number}" for number in range(FEATURES)]
COLUMNS = {"two": ["f0", "label"], "all": [*NAMES, "label"]}
#: Steps that are timed together: longer than what is read ahead lasts.
STRETCH = 5000

#: Iterates over an epoch; gives the rows of each batch.
Epoch = Callable[[int], Iterator[int]]


@attrs.frozen(kw_only=True)
class Work:
    """What a process is to measure."""

    way: str
    file: str
    batch_rows: int
    #: The columns that become tensors.
    tensors: list[str]
    #: The columns that hostcore reads; empty: all.
    columns: list[str] = attrs.field(factory=list)
    #: 0: only what is prepared once.
    seconds: float
    #: Whether to measure what the feed adds to a training step, too.
    beside_steps: bool = False


def limit(work: Work) -> Epoch:
    import pyarrow.parquet as pq

    def epoch(number: int) -> Iterator[int]:
        with pq.ParquetFile(work.file) as parquet:
            for batch in parquet.iter_batches(GROUP_ROWS, use_threads=False):
                yield batch.num_rows

    return epoch


def open_feed(work: Work, *, shuffle: bool) -> Any:
    from hostcore.job.sections import DatasetSpec
    from hostcore.worker.feed.feed import dataset_feed
    from hostcore_builtin_plugins.sources.parquet import ParquetSource
    from hostcore_hookspecs import DataContext

    spec = DatasetSpec(source="parquet", batch_size=work.batch_rows, columns=tuple(work.columns), shuffle=shuffle)
    source = ParquetSource(settings=ParquetSource.Settings(parquet_paths=work.file))
    dataset = source.open_dataset({"columns": work.columns}, DataContext())
    return dataset_feed(dataset, spec, seed=0, pointer="/dataset")


def hostcore(work: Work, *, shuffle: bool = False) -> Epoch:
    from hostcore.worker.feed.feed import Cursor
    from hostcore_toolkit import to_tensors

    feed = open_feed(work, shuffle=shuffle)

    def epoch(number: int) -> Iterator[int]:
        stream = feed.stream(Cursor(epoch=number))
        try:
            for batch in stream:
                if work.tensors:
                    to_tensors(batch, work.tensors)
                yield batch.num_rows
        finally:
            stream.close()

    return epoch


def hf(work: Work, *, shuffle: bool = False) -> Epoch:
    import datasets

    datasets.disable_progress_bars()
    cache = Path(work.file).with_suffix(".hf")
    rows = datasets.load_dataset("parquet", data_files=[work.file], split="train", cache_dir=str(cache))
    rows = rows.with_format("torch", columns=work.tensors)

    def epoch(number: int) -> Iterator[int]:
        ordered = rows.shuffle(seed=number) if shuffle else rows
        for batch in ordered.iter(batch_size=work.batch_rows):
            yield len(batch["label"])

    return epoch


def loader(work: Work, *, shuffle: bool = False) -> Epoch:
    import numpy as np
    import pyarrow.parquet as pq
    import torch

    table = pq.read_table(work.file)
    x = torch.from_numpy(np.column_stack([table[name].to_numpy() for name in NAMES]))
    y = torch.from_numpy(table["label"].to_numpy().copy())
    del table

    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(y)

        def __getitem__(self, row: int) -> Any:
            return x[row], y[row]

    batches = torch.utils.data.DataLoader(Rows(), batch_size=work.batch_rows, shuffle=shuffle)

    def epoch(number: int) -> Iterator[int]:
        for _, labels in batches:
            yield len(labels)

    return epoch


WAYS: dict[str, Callable[[Work], Epoch]] = {
    "limit": limit,
    "hostcore": hostcore,
    "hostcore_shuffled": lambda work: hostcore(work, shuffle=True),
    "hf": hf,
    "hf_shuffled": lambda work: hf(work, shuffle=True),
    "loader": loader,
    "loader_shuffled": lambda work: loader(work, shuffle=True),
}
#: What a way imports before its memory is counted.
IMPORTS = {
    "limit": ["pyarrow.parquet"],
    "hostcore": ["torch", "pyarrow.parquet", "hostcore.worker.feed.feed", "hostcore_toolkit", "hostcore.job.spec"],
    "hf": ["torch", "datasets"],
    "loader": ["torch", "pyarrow.parquet"],
}


def measure(work: Work) -> dict[str, float]:
    """What a process of its own does."""
    for module in IMPORTS[work.way.removesuffix("_shuffled")]:
        importlib.import_module(module)
    base = start_counting_memory()
    epoch = WAYS[work.way](work)
    if not work.seconds:
        return {}
    drain(epoch, 1.0)
    cpu = time.process_time()
    rows, seconds = drain(epoch, work.seconds)
    cpu = time.process_time() - cpu
    answer = {"rows_per_second": rows / seconds, "cores": cpu / seconds, "peak_bytes": peak_memory() - base}
    return answer | (added_to_steps(epoch, work.seconds) if work.beside_steps else {})


def drain(epoch: Epoch, seconds: float) -> tuple[int, float]:
    """Take batches for about so long; how many rows these were, and how long it took."""
    rows, number = 0, 0
    began = now = time.perf_counter()
    while True:
        batches = epoch(number)
        for more in batches:
            rows += more
            now = time.perf_counter()
            if now - began > seconds:
                batches.close()  # type: ignore[attr-defined]
                return rows, now - began
        number += 1


def added_to_steps(epoch: Epoch, seconds: float) -> dict[str, float]:
    """Microseconds a step: without a feed, and what it adds."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(SMALL_BATCH_ROWS, 16), torch.randn(SMALL_BATCH_ROWS, 1)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def stretch(batches: Iterator[int]) -> float:
        began = time.perf_counter()
        for _ in islice(batches, STRETCH):
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.perf_counter() - began) / STRETCH * 1e6

    batches = chain.from_iterable(map(epoch, count()))
    bare = [stretch(repeat(0))]
    added: list[float] = []
    ends = time.perf_counter() + seconds
    while len(added) < 3 or time.perf_counter() < ends:
        fed = stretch(batches)
        bare.append(stretch(repeat(0)))
        added.append(fed - (bare[-2] + bare[-1]) / 2)
    return {"step_microseconds": statistics.median(bare), "added_microseconds": statistics.median(added)}


def start_counting_memory() -> int:
    """Forget the peak up to now; the resident bytes of this process."""
    Path("/proc/self/clear_refs").write_text("5")  # see proc(5); ru_maxrss would include the parent's, before exec
    return peak_memory()


def peak_memory() -> int:
    """The most bytes that this process has had resident."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(measure(Work(**json.loads(sys.argv[1])))))
