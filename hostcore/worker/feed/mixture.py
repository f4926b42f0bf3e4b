r"""The order of a mixture: which part each row of an epoch is of, and which of the part's rows it is.

Beside the parts' own orders, it is a pure function of the weights, the seed and the place:

1. The weights become whole numbers w with the smallest sum P ≤ 65,536 that has their proportions; where there is
   none, parts of 65,536. Each P rows have w rows of each part.
2. That is repeated for a period of at least 8,192 rows. Row n of a part (from 0) comes in one of the slots ⌊nP / w⌋ + 1
   to ⌈(n + 1)P / w⌉: so at each place every part is less than one row from its exact share. Of the rows that may come
   in a slot, the one whose slots end first does; of these, that of the first part. There always is one (Tijdeman: The
   Chairman Assignment Problem. Discrete Mathematics 32, 1980).
3. Neighbours are exchanged at random, where both stay in their slots: in 64 turns those at slots 1 and 2, 3 and 4, …,
   or 2 and 3, 4 and 5, …, by the first bits of raw outputs of Philox with key (seed, 0) and counter (0, 3, 0, 0).
   Without this step, two ranks could see one part each.
4. The periods of a stage begin at its first row.
5. A part's rows come in the order of its own shards, as above, shuffled with (seed of the part, pass). The seed of
   part k is the first output of Philox with key (seed, k) and counter (0, 2, 0, 0).

``repeat`` and ``stop`` are one order, which goes on from epoch to epoch: pass after pass over each part. They differ in
where an epoch ends: with the step in which the last part has been read once (``repeat``), or with the last step before
the first part has nothing left (``stop``). In ``drop`` each epoch is one pass over all parts; where one ends, the
periods begin anew with the weights of the others. A stage that has no rows left ends there.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from hostcore.job.forms import structure
from hostcore.job.json_values import to_plain
from hostcore.worker.feed.blocks import Lane
from hostcore.worker.feed.digest import OrderLayout
from hostcore.worker.feed.gathering import Block, as_arrow
from hostcore.worker.feed.order import Indices, Share
from hostcore_hookspecs.data_source import Mixture

#: Names this layout in checkpoints.
LAYOUT: Final = "mixture/1"
_MOST_ROWS: Final = 65_536
_SEEDS, _EXCHANGES = 2, 3
#: Rows of a period, and how often neighbours are exchanged in it.
_FEWEST_ROWS: Final = 8_192
_TURNS: Final = 64
#: Weights that are whole numbers but for what binary fractions cannot hold.
_WHOLE: Final = 1e-9
#: Positions whose rows are counted at once.
_PIECE_ROWS: Final = 1 << 20
_FOREVER: Final = 1 << 62


@attrs.frozen(eq=False)
class Period:
    """The parts of the rows of a period, which repeats."""

    #: w, by part.
    rows: Indices
    #: The part of each row, and its number among the period's rows of that part; shape (P,).
    parts: Indices
    numbers: Indices

    def before(self, place: int) -> Indices:
        """Return the rows of each part before a place."""
        periods, slot = divmod(place, len(self.parts))
        return self.rows * periods + np.bincount(self.parts[:slot], minlength=len(self.rows))

    def end(self, part: int, rows: int) -> int:
        """Return the place behind so many rows of a part, at least 1."""
        if not self.rows[part]:
            return _FOREVER
        periods, number = divmod(rows - 1, int(self.rows[part]))
        return periods * len(self.parts) + int(np.flatnonzero(self.parts == part)[number]) + 1


def whole_numbers(weights: tuple[float, ...]) -> Indices:
    """Return weights as rows of each part; see step 1 above."""
    shares, sizes = np.array(weights) / sum(weights), np.arange(1, _MOST_ROWS + 1)
    is_whole = np.full(_MOST_ROWS, True)
    for share in shares:
        wanted = share * sizes
        is_whole &= np.abs(wanted - np.rint(wanted)) <= _WHOLE
    if is_whole.any():
        whole: Indices = np.rint(shares * sizes[np.argmax(is_whole)]).astype(np.int64)
        return whole
    wanted = shares * _MOST_ROWS
    rows: Indices = np.floor(wanted).astype(np.int64)
    rows[np.argsort(rows - wanted, kind="stable")[: _MOST_ROWS - rows.sum()]] += 1
    return rows


@lru_cache(maxsize=64)
def period(weights: tuple[float, ...], seed: int) -> Period:
    """Return the period of weights, of which one is above 0; see steps 2 and 3 above."""
    share = whole_numbers(weights)
    size = int(share.sum())
    rows = share * -(-_FEWEST_ROWS // size)
    parts = np.repeat(np.arange(len(rows)), rows)
    numbers = np.arange(len(parts)) - np.repeat(np.cumsum(rows) - rows, rows)
    first, last = numbers * size // share[parts], -(-(numbers + 1) * size // share[parts]) - 1  # slots from 0
    drawn = _earliest_first(first, last)
    key, counter = np.array([seed, 0], dtype=np.uint64), np.array([0, _EXCHANGES, 0, 0], dtype=np.uint64)
    random = np.random.Philox(key=key, counter=counter)
    for turn in range(_TURNS):
        left = np.arange(turn % 2, len(drawn) - 1, 2)
        left = left[random.random_raw(len(left)) >> np.uint64(63) == 1]
        one, other = drawn[left], drawn[left + 1]
        may = (parts[one] != parts[other]) & (first[other] <= left) & (last[one] > left)
        drawn[left[may]], drawn[left[may] + 1] = other[may], one[may]
    return Period(rows, parts[drawn], numbers[drawn])


def _earliest_first(first: Indices, last: Indices) -> Indices:
    """Return what comes in each slot, of as many that come in one of their slots each: what has the earliest end."""
    coming = np.argsort(first, kind="stable").tolist()[::-1]
    ends, begins = last.tolist(), first.tolist()
    waiting: list[tuple[int, int]] = []
    drawn = []
    for slot in range(len(ends)):
        while coming and begins[coming[-1]] <= slot:
            one = coming.pop()
            heapq.heappush(waiting, (ends[one], one))
        drawn.append(heapq.heappop(waiting)[1])
    return np.array(drawn)


@attrs.frozen(eq=False)
class Stretch:
    """Places of the order in which one period repeats."""

    start: int
    stop: int
    #: Rows of each part before it.
    before: Indices
    period: Period

    def end(self, part: int, rows: int) -> int:
        """Return the place behind so many rows of a part; far behind all if it does not lie in this stretch."""
        missing = rows - int(self.before[part])
        end = self.start + self.period.end(part, missing) if missing > 0 else _FOREVER
        return end if end <= self.stop else _FOREVER

    def draw(self, start: int, stop: int) -> tuple[Indices, Indices]:
        """Return, for those of a range of places that lie in it, the part of each row, and its number in the part."""
        places = np.arange(max(start, self.start), max(start, self.start, min(stop, self.stop))) - self.start
        periods, slots = places // len(self.period.parts), places % len(self.period.parts)
        parts = self.period.parts[slots]
        numbers: Indices = self.before[parts] + periods * self.period.rows[parts] + self.period.numbers[slots]
        return parts, numbers


@attrs.frozen(kw_only=True)
class MixtureLayout:
    """Everything that the order of a mixture follows from; like :class:`OrderLayout` in its public methods."""

    mixture: Mixture
    #: Each part alone.
    parts: tuple[OrderLayout, ...]
    rows_per_step: int
    seed: int
    #: Rows of an epoch.
    num_rows: int = attrs.field(init=False, eq=False)

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        shard_rows: Sequence[int],
        *,
        seed: int,
        rows_per_step: int,
        lanes: Sequence[int],
        window: Sequence[int],
    ) -> "MixtureLayout":
        """Return the layout of a dataset's mixture.

        :param lanes: L of each part, and ``window`` W; 0 in file order.
        """
        bounds = pairwise(accumulate(mixture.shards, initial=0))
        parts = [
            OrderLayout(shard_rows=tuple(shard_rows[first:end]), seed=_seed(seed, k), lanes=lanes[k], window=window[k])
            for k, (first, end) in enumerate(bounds)
        ]
        return cls(mixture=mixture, parts=tuple(parts), rows_per_step=rows_per_step, seed=seed)

    @classmethod
    def stored(cls, identity: Mapping[str, Any], shard_rows: Sequence[int]) -> "MixtureLayout | OrderLayout":
        """Return the layout that a checkpoint stores, of a mixture or of other data; see :class:`OrderLayout`.

        :raises ValueError: For an order that this version does not know.
        """
        if identity.get("order") != LAYOUT:
            return OrderLayout.stored(identity, shard_rows)
        mixture, rows_per_step = structure(Mixture, identity["mixture"]), identity["batch_size"]
        keys = {key: identity[key] for key in ("seed", "lanes", "window")}
        return cls.of(mixture, shard_rows, rows_per_step=rows_per_step, **keys)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "num_rows", self._epoch_rows())

    def _epoch_rows(self) -> int:
        sizes = [sum(part.shard_rows) for part in self.parts]
        if self.mixture.exhausted == "drop":
            return sum(sizes)
        stretches = list(self._stretches(0))
        ends = [min(one.end(part, size) for one in stretches) for part, size in enumerate(sizes)]
        end = max(ends) + self.rows_per_step - 1 if self.mixture.exhausted == "repeat" else min(ends)
        return end // self.rows_per_step * self.rows_per_step

    @property
    def rows_per_epoch(self) -> int:
        """The rows that an epoch trains on: whole steps."""
        return self.num_rows // self.rows_per_step * self.rows_per_step

    def identity(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps of it; plain JSON."""
        lanes, window = [part.lanes for part in self.parts], [part.window for part in self.parts]
        return {
            "order": LAYOUT,
            "mixture": to_plain(self.mixture),
            "lanes": lanes,
            "window": window,
        }

    def _stretches(self, origin: int) -> Iterator[Stretch]:
        """Yield the stretches of the order, one behind the other.

        :param origin: The row of the run at its place 0.
        """
        drop, sizes = self.mixture.exhausted == "drop", np.array([sum(part.shard_rows) for part in self.parts])
        place, before = 0, np.zeros(len(sizes), np.int64)
        stages = [(one.until * self.rows_per_step - origin, one.weights) for one in self.mixture.stages]
        for end, weights in (*stages, (_FOREVER, self.mixture.weights)):
            while place < end:
                left = sizes - before if drop else np.full(len(sizes), _FOREVER)
                alive = tuple(weight if rows else 0.0 for weight, rows in zip(weights, left.tolist(), strict=True))
                if not any(alive):
                    break
                repeated = period(alive, self.seed)
                ends = [repeated.end(part, int(rows)) for part, rows in enumerate(left) if drop and rows]
                stop = min([end, *(place + one for one in ends)])
                yield Stretch(place, stop, before, repeated)
                place, before = stop, before + repeated.before(stop - place)

    def drawing(self, epoch: int) -> Callable[[int, int], tuple[Indices, Indices]]:
        """Return a function of a range of an epoch's positions: the part of each row, and the row's number in it.

        The rows of a part are counted over all passes; in ``drop``, from the epoch's first row on.
        """
        drop, origin = self.mixture.exhausted == "drop", epoch * self.rows_per_epoch
        stretches = list(self._stretches(origin if drop else 0))

        def draw(start: int, stop: int) -> tuple[Indices, Indices]:
            shift = 0 if drop else origin
            found = [one.draw(start + shift, stop + shift) for one in stretches]
            parts, numbers = (np.concatenate(one) for one in zip(*found, strict=True))
            return parts, numbers

        return draw

    def passes(self, part: int, epoch: int, first: int, end: int = _FOREVER) -> Iterator[tuple[int, int, int]]:
        """Yield the passes over a part, by number, with the range of their rows that lies in one of the part's rows."""
        rows = sum(self.parts[part].shard_rows)
        while first < end:
            number, start = divmod(first, rows) if self.mixture.exhausted != "drop" else (epoch, first)
            stop = min(rows, start + end - first)
            yield number, start, stop
            if self.mixture.exhausted == "drop":
                return
            first += stop - start

    def row_numbers(self, epoch: int, start: int, stop: int) -> Iterator[tuple[Indices, Indices]]:
        """See :meth:`OrderLayout.row_numbers`; rows are counted through all parts."""
        draw = self.drawing(epoch)
        starts = list(accumulate((sum(part.shard_rows) for part in self.parts), initial=0))
        for first in range(start, stop, _PIECE_ROWS):
            positions = np.arange(first, min(first + _PIECE_ROWS, stop))
            parts, numbers = draw(first, first + len(positions))
            rows = np.empty_like(positions)
            for part in np.unique(parts).tolist():
                chosen = parts == part
                own = numbers[chosen]
                rows[chosen] = starts[part] + self._own_rows(part, epoch, int(own[0]), int(own[-1]) + 1)
            yield positions, rows

    def _own_rows(self, part: int, epoch: int, first: int, end: int) -> Indices:
        own, done = np.empty(end - first, np.int64), 0
        for number, start, stop in self.passes(part, epoch, first, end):
            for positions, rows in self.parts[part].row_numbers(number, start, stop):
                own[positions - start + done] = rows
            done += stop - start
        return own


def _seed(seed: int, part: int) -> int:
    key, counter = np.array([seed, part], dtype=np.uint64), np.array([0, _SEEDS, 0, 0], dtype=np.uint64)
    return int(np.random.Philox(key=key, counter=counter).random_raw())


def mixture_blocks(
    layout: MixtureLayout,
    epoch: int,
    position: int,
    share: Share,
    *,
    open_part: Callable[[int, int, int], Iterator[Block]],
    piece_rows: int,
) -> Iterator[Block]:
    """A share of an epoch of a mixture in its final order, from a position on.

    :param open_part: Returns the rows of a part in its own order; its arguments are the part, the pass, and the
        position in it.
    :param piece_rows: Rows over all ranks that are put in order together.
    """
    draw, lanes = layout.drawing(epoch), {}

    def opened(part: int, first: int) -> Iterator[Block]:
        for number, start, _ in layout.passes(part, epoch, first):
            yield from open_part(part, number, start)

    for start in range(position, layout.num_rows, piece_rows):
        stop = min(start + piece_rows, layout.num_rows)
        parts, numbers = draw(start, stop)
        drawn: list[Block] = []
        for part in np.unique(parts).tolist():
            chosen = numbers[parts == part]
            if part not in lanes:
                lanes[part] = Lane(opened(part, int(chosen[0])))
            drawn += lanes[part].draw(len(chosen))
        places = np.empty_like(parts)
        places[np.argsort(parts, kind="stable")] = np.arange(len(parts))
        own = places[share.skip(start) :: share.world_size]
        if len(own):
            nbytes = max(1, sum(one.nbytes for one in drawn) * len(own) // len(parts))
            yield Block(
                batch=pa.concat_batches([one.batch for one in drawn]).take(as_arrow(own)),
                numbers=np.concatenate([one.numbers for one in drawn])[own],
                nbytes=nbytes,
                unit_bytes=nbytes,
            )
