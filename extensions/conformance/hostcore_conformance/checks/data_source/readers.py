"""That readers do not disturb each other, nor what they have handed over, and leave nothing open."""

import threading
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.data_source.stage import (
    Whole,
    first_unequal,
    open_example,
    read_batches,
    read_rows,
    rows_of,
    telling_shards,
    whole,
)
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.process.resources import held
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.data_source import Dataset, Shard

if TYPE_CHECKING:
    import pyarrow as pa

_PATIENCE_SECONDS: Final = 60.0
_TIMES: Final = 5


@check(
    "data_source.independent_readers",
    requires=("data_source.deterministic",),
    variants=("interleaved", "two_datasets", "other_thread", "two_threads"),
)
def independent_readers(subject: Subject, variant: str) -> None:
    """Several readers at once each get what one alone gets.

    Interleaved: two shards of one dataset are read by turns, a batch of each; so does a shuffled run, which draws from
    up to 24 places at once. two_datasets: the same, over two datasets opened alike, as training and validation may be.
    other_thread: a dataset is read in another thread than it was opened in; so does reading ahead. two_threads: two
    datasets are read in two threads at once, as when a validation begins while the training's data is read ahead.

    What usually breaks it: one file handle or cursor that belongs to the dataset, a buffer that all readers share,
    module-level state, a connection of a database that is bound to its thread. Open in read_shard what a reader needs.
    """
    everything = whole(subject)
    if variant in ("interleaved", "two_datasets"):
        one = open_example(subject)
        _by_turns(everything, one, open_example(subject) if variant == "two_datasets" else one)
    else:
        datasets = [open_example(subject) for _ in range(2 if variant == "two_threads" else 1)]
        _in_threads(everything, datasets)


def _by_turns(everything: Whole, one: Dataset, other: Dataset) -> None:
    chosen = telling_shards(everything.shards)
    first, second = chosen[0], chosen[-1]
    readers = [read_batches(one, _own(one, first)), read_batches(other, _own(other, second))]
    found: tuple[list[str], list[str]] = ([], [])
    for batches in zip_longest(*readers):
        for rows, batch in zip(found, batches, strict=True):
            rows.extend(rows_of(batch) if batch is not None else [])
    for shard, rows in zip((first, second), found, strict=True):
        _require(everything, shard, rows, "while another reader was at work")


def _in_threads(everything: Whole, datasets: list[Dataset]) -> None:
    chosen = telling_shards(everything.shards)
    orders = [chosen, chosen[::-1]]
    found: list[list[tuple[Shard, list[str]]]] = [[] for _ in datasets]
    errors: list[BaseException] = []

    def read(dataset: Dataset, order: list[Shard], results: list[tuple[Shard, list[str]]]) -> None:
        try:
            results.extend((shard, read_rows(dataset, _own(dataset, shard))) for shard in order)
        except BaseException as error:  # noqa: BLE001 - raised where it is seen
            errors.append(error)

    threads = [
        threading.Thread(target=read, args=arguments, name="hostcore check", daemon=True)
        for arguments in zip(datasets, orders, found, strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise ConformanceError(
            expected="reading in another thread to come to its end",
            got=f"nothing after {_PATIENCE_SECONDS:g} s",
            fix="Look for a lock that one reader holds and another waits for.",
        )
    for error in errors:
        raise error
    for results in found:
        for shard, rows in results:
            _require(everything, shard, rows, "in another thread")


def _own(dataset: Dataset, shard: Shard) -> Shard:
    """The shard as this dataset lists it."""
    return next(one for one in dataset.shards() if one.id == shard.id)


def _require(everything: Whole, shard: Shard, found: list[str], how: str) -> None:
    expected = next(rows for one, rows in zip(everything.shards, everything.rows, strict=True) if one.id == shard.id)
    if found != expected:
        raise ConformanceError(
            expected=f"the rows of the shard {shard.id!r}, as when it is read alone",
            got=f"{first_unequal(expected, found)} {how}",
            fix="Give every call of read_shard its own handle and position; open them in it, not in open_dataset.",
        )


@check("data_source.batches_kept", requires=("data_source.deterministic",))
def batches_kept(subject: Subject) -> None:
    """A batch stays as it is when later ones are read.

    All batches of some shards are kept, and looked at again after the last. The host keeps several: a batch that a
    trainer gets is a slice of what the source yielded, and a shuffle window is gathered from many.

    What usually breaks it: a NumPy array or a buffer that is filled again for every batch, and wrapped without a copy
    (pyarrow.py_buffer, pyarrow.array of an array). Allocate a new one for every batch.
    """
    dataset = open_example(subject)
    kept: list[tuple[Shard, int, pa.RecordBatch, list[str]]] = []
    for shard in telling_shards(dataset.shards()):
        for place, batch in enumerate(read_batches(dataset, shard)):
            kept.append((shard, place, batch, rows_of(batch)))
    for shard, place, batch, before in kept:
        after = rows_of(batch)
        if after != before:
            raise ConformanceError(
                expected=f"batch {place} of the shard {shard.id!r} to stay as it was when it came",
                got=f"after later batches were read, {first_unequal(before, after)}",
                fix="Give each batch memory of its own.",
            )


@check("data_source.early_close", requires=("data_source.deterministic",))
def early_close(subject: Subject) -> None:
    """Readers that end early leave nothing open, and neither does the dataset.

    Shards are read for one batch, and their iterators closed, several times. Then the dataset is dropped. In between,
    the open files and the threads of the process are counted: they must not become more from one round to the next, and
    in the end be those of before. A shuffled run of a hundred epochs closes thousands of readers in the middle of a
    shard, wherever a lane begins.

    What usually breaks it: an open file without a with block around the yield; a thread that fills a queue which
    no reader empties any more. In a generator, with and try/finally end as soon as it is closed.
    """
    for reader in _ended_early(open_example(subject)):  # what a library opens once and for all is open now
        reader()
    before = held()
    dataset: Dataset | None = open_example(subject)
    assert dataset is not None
    readers = list(_ended_early(dataset))
    for reader in readers:
        reader()
    first = held()  # a handle for each file may well be kept
    for reader in readers * _TIMES:
        reader()
    _require_released(held().leaks(first), "after the same shards were begun and left again")
    del readers, reader
    dataset = None
    _require_released(held().leaks(before), "after the dataset was dropped")


def _ended_early(dataset: Dataset) -> Iterator[Callable[[], None]]:
    def read(shard: Shard) -> None:
        batches: Any = iter(dataset.read_shard(shard, None, 0))
        next(batches, None)
        if hasattr(batches, "close"):
            batches.close()

    for shard in telling_shards(dataset.shards()):
        yield lambda shard=shard: read(shard)  # type: ignore[misc]


def _require_released(left: list[str], when: str) -> None:
    if left:
        raise ConformanceError(
            expected="nothing left open",
            got=f"{', '.join(left[:5])} {when}",
            fix="Open files in read_shard, with a with block around the yield, and end threads in a finally.",
        )
