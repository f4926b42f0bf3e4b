"""Checks of shards against the contract; together they are the data: each row once, from any offset on."""

import random
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hostcore_conformance.check import check
from hostcore_conformance.checks.data_source.stage import (
    first_unequal,
    open_example,
    read_rows,
    rows_of,
    shown,
    telling_shards,
    whole,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.data_source import Shard

_RANDOM_OFFSETS = 4


@check("data_source.shards", requires=("data_source.opens",))
def shards(subject: Subject) -> None:
    """Shards have stable, unique ids, and are listed alike every time.

    The data is opened twice, and shards() is called twice on each. There must be at least one shard with rows; each has
    an id (a string, unique within the dataset), num_rows (an int) and a version (a string), and all four lists are
    equal. Checkpoints keep the fingerprint of this list, and a run that finds another one does not resume: the position
    in it would mean other rows.

    What usually breaks it: ids that come from id(), hash() or a temporary folder; a list in the order of a set or of an
    unsorted folder; a version that is the time of opening.
    """
    datasets = [open_example(subject), open_example(subject)]
    first = list(datasets[0].shards())
    for shard in first:
        _require_fields(shard)
    repeated = [id_ for id_, count in Counter(shard.id for shard in first).items() if count > 1]
    if repeated:
        raise ConformanceError(
            expected="every shard to have an id of its own",
            got=f"{repeated[0]!r} several times among {len(first)} shards",
            fix='Put the place of the shard into its id: f"{file}#{index}".',
        )
    if not any(shard.num_rows for shard in first):
        raise ConformanceError(
            expected="at least one shard with rows",
            got=f"{len(first)} shards, all without rows",
            fix="Give an example that has rows; open_dataset should raise InvalidData for data that has none.",
        )
    for what, dataset in (("asked again", datasets[0]), ("opened again", datasets[1])):
        _require_same(first, list(dataset.shards()), what)


def _require_fields(shard: Any) -> None:
    wanted: Mapping[str, tuple[type, str]] = {
        "id": (str, "a string with something in it"),
        "num_rows": (int, "an int, 0 or more"),
        "version": (str, "a string"),
    }
    for name, (kind, words) in wanted.items():
        value: Any = getattr(shard, name, None)
        right = isinstance(value, kind) and not isinstance(value, bool)
        if not right or (name == "id" and not value) or (name == "num_rows" and int(value) < 0):
            raise ConformanceError(
                expected=f"{name} of every shard to be {words}",
                got=f"{value!r}, of type {type(value).__name__}, in {shard!r}",
                fix="Return hostcore_hookspecs.Shard(id=…, num_rows=int(rows), version=…), its rows counted.",
            )


def _require_same(first: Sequence[Shard], other: Sequence[Shard], what: str) -> None:
    if len(first) != len(other):
        raise ConformanceError(
            expected=f"the same {len(first)} shards when {what}",
            got=f"{len(other)}",
            fix="List them once, when the data is opened.",
        )
    for one, two in zip(first, other, strict=True):
        for name in ("id", "num_rows", "version"):
            if getattr(one, name) != getattr(two, name):
                raise ConformanceError(
                    expected=f"the shard {one.id!r} to have the same {name} when {what}",
                    got=f"{getattr(two, name)!r} instead of {getattr(one, name)!r}",
                    fix="Derive ids from names and places, sorted, and versions from size and time of modification or"
                    " the store's ETag.",
                )


@check("data_source.num_rows", requires=("data_source.schema", "data_source.shards"))
def num_rows(subject: Subject) -> None:
    """Every shard has exactly as many rows as its num_rows.

    All shards of the example are read to their end and counted. The host computes the order of an epoch, the number of
    its steps and the place to resume at from num_rows alone. Too many, and rows are never seen; too few, and the run
    fails in the middle.

    What usually breaks it: a header that is counted, a last line without a newline, filters that are applied while
    reading, an estimate.
    """
    everything = whole(subject)
    for shard, rows in zip(everything.shards, everything.rows, strict=True):
        if len(rows) != shard.num_rows:
            more = " or more" if len(rows) > shard.num_rows else ""
            raise ConformanceError(
                expected=f"{shard.num_rows} rows in the shard {shard.id!r}, its num_rows",
                got=f"{len(rows)}{more}",
                fix="Count the rows that read_shard will yield, when the data is opened.",
            )


@check("data_source.shards_disjoint", requires=("data_source.num_rows",))
def shards_disjoint(subject: Subject) -> None:
    """No row is in two shards.

    The rows of all shards of the example are compared. It needs an example with several shards in which every row is
    different from all others, at least within each shard. A row that is in two shards is trained on twice as often.

    What usually breaks it: read_shard does not look at which shard it is to read, or ranges that include their end.
    """
    everything = whole(subject)
    filled = [(shard, rows) for shard, rows in zip(everything.shards, everything.rows, strict=True) if rows]
    if len(filled) < 2:
        raise NotApplicable("the example has one shard only: give one with several", wants_example=True)
    if any(len(set(rows)) < len(rows) for _, rows in filled):
        raise NotApplicable("rows of the example are alike: give one in which each is different", wants_example=True)
    owner: dict[str, str] = {}
    for shard, rows in filled:
        for place, row in enumerate(rows):
            if row in owner:
                raise ConformanceError(
                    expected="no row in two shards",
                    got=f"row {place} of {shard.id!r} ({shown(row)}) in {owner[row]!r} as well",
                    fix="Let every shard end where the next one begins. If the data really has this row twice, give an"
                    " example in which each row is different.",
                )
        owner.update((row, shard.id) for row in rows)


@check("data_source.rows_complete", requires=("data_source.num_rows",))
def rows_complete(subject: Subject) -> None:
    """The shards together are all of the data, in order.

    Asked if the harness of the example has a method rows(), which returns what the data has in it as its author knows
    it: a pyarrow.Table, or a list of dictionaries. All shards are read one after the other and compared with it.

    What usually breaks it: a last shard that is not full, a file that is passed over, the first row taken for a header.
    """
    import pyarrow as pa

    tell = getattr(subject.harness, "rows", None)
    if tell is None:
        raise NotApplicable("its example has no harness with rows(), which returns the rows that there are")
    known = tell()
    table = known if isinstance(known, pa.Table) else pa.Table.from_pylist(known, schema=open_example(subject).schema)
    expected = [row for batch in table.to_batches() for row in rows_of(batch)]
    found = whole(subject).all_rows
    if found != expected:
        raise ConformanceError(
            expected=f"the {len(expected)} rows that rows() of the harness returns, in that order",
            got=first_unequal(expected, found),
            fix="List shards for all of the data, in its order, and read each of them from its first row to its last.",
        )


@check("data_source.offsets", requires=("data_source.num_rows",))
def offsets(subject: Subject) -> None:
    """Reading from an offset gives what is left after skipping so many rows.

    Some shards are read from their first row, the second, the middle, the last, from behind it (which gives no rows),
    and from random places. Resuming and shuffling both begin in the middle of shards; an offset that is off by one
    shifts every label that follows.

    What usually breaks it: an offset that is taken for a number of batches or bytes, or is applied to every batch.
    """
    seed = secrets.randbelow(2**32)
    draw = random.Random(seed)  # noqa: S311 - to test with
    everything = whole(subject)
    by_id = dict(zip((shard.id for shard in everything.shards), everything.rows, strict=True))
    dataset = open_example(subject)
    for shard in telling_shards(dataset.shards()):
        rows, size = by_id[shard.id], shard.num_rows
        drawn = [draw.randrange(size) for _ in range(_RANDOM_OFFSETS)]
        for offset in dict.fromkeys([0, 1, size // 2, size - 1, size, *drawn]):
            found = read_rows(dataset, shard, offset=offset)
            if found != rows[offset:]:
                raise ConformanceError(
                    expected=f"the last {size - offset} of {size} rows from read_shard({shard.id!r}, None, {offset})",
                    got=f"{first_unequal(rows[offset:], found)} (random offsets by seed {seed})",
                    fix="Skip exactly so many rows, once, before the first batch.",
                )


@check("data_source.deterministic", requires=("data_source.num_rows",))
def deterministic(subject: Subject) -> None:
    """Every opening reads the same rows in the same order.

    The data is opened once more, and all of it is read once more. The order of a run's data is a pure function of its
    seed only if a shard is always the same rows; a resumed run would train on others otherwise.

    What usually breaks it: an iteration over a set or an unsorted folder, threads that deliver as they finish, a
    shuffle of the source's own. The host shuffles.
    """
    expected = whole(subject)
    dataset = open_example(subject)
    for shard, rows in zip(dataset.shards(), expected.rows, strict=True):
        found = read_rows(dataset, shard)
        if found != rows:
            raise ConformanceError(
                expected=f"the same rows in the shard {shard.id!r} when the data is opened again",
                got=first_unequal(rows, found),
                fix="Read in one order, and leave shuffling to the host (dataset.shuffle).",
            )
