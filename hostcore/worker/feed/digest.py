"""The layout of an order of rows, and digests: what a checkpoint keeps to prove that no row was skipped or repeated.

The digest of a run is the sum, modulo 2^64, over all rows that it has been trained on, of

    mix(mix(epoch + (position + 1) * GAMMA) xor row)

where ``position`` is the row's global position in its epoch and ``row`` its number, counted through all shards in file
order. ``mix`` and GAMMA are those of SplitMix64 (``mix64variant13``; Steele, Lea, Flood: Fast Splittable Pseudorandom
Number Generators. OOPSLA 2014): the inner term is the output number ``position`` of that generator, seeded with the
epoch. A sum does not depend on the order of its terms, so the digests of stretches and of ranks add up to that of the
whole.

It finds mistakes; it is not a signature, which would withstand deliberate forgery.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from hostcore.worker.feed.order import LAYOUT, Indices, Share, ShuffledOrder

if TYPE_CHECKING:
    from hostcore.worker.feed.feed import Cursor

Words = npt.NDArray[np.uint64]

_MODULUS: Final = 1 << 64
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
#: Shift right and xor, then multiply; the last time without multiplying.
_ROUNDS: Final = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT: Final = 31
#: Rows mixed at once: few enough to stay in a core's cache.
_PIECE_ROWS: Final = 32_768
#: The steps that a consumer may have asked for before it has trained on them, at most.
_STEPS_KEPT: Final = 16_384
#: What a rank may decode, as a multiple of its own share, without a warning.
_DECODED_TIMES: Final = 1.5
#: Lanes that mix well.
_MIXING_LANES: Final = 8
#: More add nothing.
_ENOUGH_LANES: Final = 24
#: With fewer, reading partial shards where lanes begin costs too much.
_SHARDS_PER_LANE: Final = 4


def row_digest(epoch: int, positions: Indices, rows: Indices) -> int:
    """The digest of rows at these positions of an epoch.

    :param positions: Global positions, of any shape ``(n,)``.
    :param rows: The number of the row at each of them.
    """
    total = 0
    for start in range(0, len(rows), _PIECE_ROWS):
        piece = slice(start, start + _PIECE_ROWS)
        total += int(_terms(_counters(epoch, positions[piece]), rows[piece]).sum(dtype=np.uint64))
    return total % _MODULUS


def _counters(epoch: int, positions: Indices) -> Words:
    """The states from which SplitMix64, seeded with the epoch, makes its outputs of these numbers."""
    counters = positions.astype(np.uint64)
    counters += np.uint64(1)
    counters *= _GAMMA
    counters += np.uint64(epoch)
    return counters


def _terms(counters: Words, rows: Indices) -> Words:
    """The terms of the sum.

    :param counters: Overwritten with the result.
    """
    spare = np.empty_like(counters)
    _mix(counters, spare)
    counters ^= rows.view(np.uint64)
    _mix(counters, spare)
    return counters


def _mix(words: Words, spare: Words) -> None:
    """Replace each word by its ``mix64variant13``.

    :param spare: As large as ``words``; its content is lost.
    """
    for shift, factor in _ROUNDS:
        np.right_shift(words, shift, out=spare)
        words ^= spare
        words *= factor
    np.right_shift(words, _LAST_SHIFT, out=spare)
    words ^= spare


@attrs.frozen(kw_only=True)
class OrderLayout:
    """Everything that the order of the rows follows from. A checkpoint stores it."""

    #: Rows of each shard, in file order.
    shard_rows: Sequence[int]
    seed: int = 0
    #: Over all ranks.
    rows_per_step: int = 1
    #: L and W of the shuffled order; 0 in file order.
    lanes: int = 0
    window: int = 0

    @classmethod
    def stored(cls, identity: Mapping[str, Any], shard_rows: Sequence[int]) -> "OrderLayout":
        """Return the layout that a checkpoint stores: the identity of its feed, and the rows of its shards.

        :raises ValueError: For an order that this version does not know.
        """
        if "mock_batches" in identity:
            return cls(shard_rows=(identity["mock_batches"],), rows_per_step=identity["batch_size"])
        if identity["order"] not in (LAYOUT, "file"):
            raise ValueError(f"the order {identity['order']!r} is not known to this version")
        return cls(
            shard_rows=tuple(shard_rows),
            seed=identity["seed"],
            rows_per_step=identity["batch_size"],
            lanes=identity["lanes"],
            window=identity["window"],
        )

    @property
    def rows_per_epoch(self) -> int:
        """The rows that an epoch trains on: its tail is left out."""
        return sum(self.shard_rows) // self.rows_per_step * self.rows_per_step

    def row_numbers(self, epoch: int, start: int, stop: int) -> Iterator[tuple[Indices, Indices]]:
        """Some positions of an epoch and the numbers of their rows, in pieces; in a piece, in any order."""
        if not self.lanes:
            for first in range(start, stop, _PIECE_ROWS):
                positions = np.arange(first, min(first + _PIECE_ROWS, stop))
                yield positions, positions
            return
        order = ShuffledOrder(
            shard_rows=self.shard_rows, seed=self.seed, epoch=epoch, lanes=self.lanes, window=self.window
        )
        window, offset = order.window_of(start)
        while start < stop:
            if window == order.num_windows:
                positions, numbers = np.arange(start, stop), order.row_numbers(start, stop)
                end = stop
            else:
                positions, numbers = _window(order, window)
                end = start - offset + len(positions)
                if offset or end > stop:
                    among = (positions >= start) & (positions < stop)
                    positions, numbers = positions[among], numbers[among]
            yield positions, numbers
            start, window, offset = end, window + 1, 0


def _window(order: ShuffledOrder, window: int) -> tuple[Indices, Indices]:
    """The positions of a window and the numbers of their rows, lane by lane."""
    rows, first = order.window_rows(window), window * order.lane_window
    starts = [lane * order.lane_rows + first for lane in range(order.lanes)]
    numbers = [order.row_numbers(start, start + rows)[order.places(window, lane)] for lane, start in enumerate(starts)]
    positions = np.arange(first, first + rows) * order.lanes + np.arange(order.lanes)[:, None]
    return positions.ravel(), np.concatenate(numbers)


def advice(layout: OrderLayout, world_size: int) -> Iterator[str]:
    """Sentences that name what is not good about the order of some data, each with the remedy."""
    shards, lanes = len(layout.shard_rows), layout.lanes
    if not lanes:
        if world_size > 1:
            yield (
                f"in file order each of {world_size} ranks decodes all of the data: set dataset.shuffle, so that each "
                "decodes its share"
            )
        return
    times = world_size / math.gcd(world_size, lanes) * (1 + lanes / (2 * shards))
    if times > _DECODED_TIMES:
        yield f"each rank decodes about {times:.1f} times its share of the data: {_remedy(shards, lanes, world_size)}"
    if lanes < _MIXING_LANES and sum(layout.shard_rows) > layout.window:
        yield (
            f"the shuffle mixes poorly: the data has {shards:,} shard{'s' * (shards > 1)} (a row group is one), and a "
            f"batch draws from {lanes} place{'s' * (lanes > 1)} at once: write smaller row groups, "
            f"{_MIXING_LANES * _SHARDS_PER_LANE} or more, or set dataset.lanes to {_MIXING_LANES}"
        )


def _remedy(shards: int, lanes: int, world_size: int) -> str:
    if lanes > shards:
        return f"lower dataset.lanes, or write smaller row groups, {_SHARDS_PER_LANE * lanes:,} or more"
    possible = shards // _SHARDS_PER_LANE // world_size
    if possible:
        wanted = world_size * min(possible, max(1, _ENOUGH_LANES // world_size))
        return f"set dataset.lanes to {wanted}, a multiple of the {world_size} ranks"
    enough = _SHARDS_PER_LANE * world_size
    return f"write smaller row groups, {enough:,} or more, and set dataset.lanes to {world_size}, the number of ranks"


class RowOrder(Protocol):
    """Order of the rows of each epoch."""

    @property
    def rows_per_epoch(self) -> int:
        """The rows that an epoch trains on."""

    def row_numbers(self, epoch: int, start: int, stop: int) -> Iterator[tuple[Indices, Indices]]:
        """See :meth:`OrderLayout.row_numbers`."""


def expected_digest(layout: RowOrder, since: "Cursor", until: "Cursor") -> int:
    """The digest of what lies between two cursors, from the order alone: no data is read.

    Linear in the rows between them.
    """
    total, per_epoch = 0, layout.rows_per_epoch
    for epoch in range(since.epoch, until.epoch + 1 if per_epoch else 0):
        start = since.rows if epoch == since.epoch else 0
        stop = until.rows if epoch == until.epoch else per_epoch
        for positions, rows in layout.row_numbers(epoch, start, stop):
            total += row_digest(epoch, positions, rows)
    return total % _MODULUS


class Tally:
    """Adds up the digests of a stream's rows as they are read.

    :param start: The position where the stream begins.
    :param share: The positions whose rows will be counted.
    :param batch_rows: Rows of a step in this share.
    """

    def __init__(self, epoch: int, start: int, share: Share, batch_rows: int) -> None:
        self._stride = share.world_size
        self._batch_rows = batch_rows
        self._rows_missing = batch_rows
        self._sum = 0
        # The counters of consecutive rows lie at equal distances.
        first = np.arange(1, dtype=np.int64) + start + share.skip(start)
        self._next = int(_counters(epoch, first)[0])
        self._apart = int(_GAMMA) * share.world_size
        self._distances = np.arange(_PIECE_ROWS, dtype=np.uint64) * np.uint64(self._apart % _MODULUS)

    def count(self, rows: Indices) -> list[int]:
        """Count the next rows.

        :param rows: Their numbers.
        :return: The digest of all rows up to the end of each step that ends within these.
        """
        ended: list[int] = []
        for start in range(0, len(rows), _PIECE_ROWS):
            ended += self._count(rows[start : start + _PIECE_ROWS])
        return ended

    def _count(self, rows: Indices) -> list[int]:
        sums = _terms(self._distances[: len(rows)] + np.uint64(self._next), rows)
        np.cumsum(sums, out=sums)
        sums += np.uint64(self._sum)
        ended: list[int] = sums[self._rows_missing - 1 :: self._batch_rows].tolist()
        self._next = (self._next + len(rows) * self._apart) % _MODULUS
        self._sum = int(sums[-1])
        self._rows_missing = (self._rows_missing - len(rows) - 1) % self._batch_rows + 1
        return ended


class StepDigests:
    """The digests at the ends of the steps that a stream has given out, the newest of them.

    :param start: The position where the stream begins.
    :param rows_per_step: Over all ranks.
    """

    def __init__(self, start: int, rows_per_step: int) -> None:
        self._start = start
        self._rows_per_step = rows_per_step
        self._steps = 0
        self._newest: deque[int] = deque()

    def add(self, digests: Sequence[int]) -> None:
        """Add the digests at the ends of the next steps, of which a window may have any number."""
        self._steps += len(digests)
        self._newest.extend(digests)
        for _ in range(len(self._newest) - _STEPS_KEPT - len(digests)):
            self._newest.popleft()

    def up_to(self, position: int) -> int:
        """The digest of the rows from the start up to a position, where a step ends.

        :raises ValueError: If no step ends there, or none that has been given out, or it was too long ago.
        """
        steps, inside = divmod(position - self._start, self._rows_per_step)
        if steps == 0 and not inside:
            return 0
        place = len(self._newest) - 1 - (self._steps - steps)
        if inside or not 0 <= place < len(self._newest):
            raise ValueError(f"no digest at position {position:,} of a stream from {self._start:,} on")
        return self._newest[place]
