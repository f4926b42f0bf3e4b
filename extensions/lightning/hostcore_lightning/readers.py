"""A ``DataLoader`` as rows by number, in an order that the host decides or that follows from seed and epoch.

================  ========================================================  ===========================
reader            a number is                                               of a loader
================  ========================================================  ===========================
`LoaderReader`    a row of the dataset; the host shuffles                   with PyTorch's samplers
`SampledReader`   a place in the order that the sampler draws for an epoch  with another sampler
`BatchReader`     a batch that the batch sampler draws for an epoch         with another batch sampler
`WholeReader`     what the sampler gives the dataset at once                with ``batch_size=None``
`StreamReader`    a batch of the passes over the dataset                    of an ``IterableDataset``
`IterableReader`  a batch of the passes over the iterable                   that is no ``DataLoader``
================  ========================================================  ===========================
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from hostcore_hookspecs import InvalidData
from hostcore_lightning.settings import CannotRun
from hostcore_lightning.stream_state import EVERY, StreamStates, states_of
from hostcore_toolkit.draws import (
    generators_in,
    random_states,
    random_states_kept,
    seed_each,
    seeded,
    set_random_states,
)
from hostcore_toolkit.items import ItemReader

Refuse = Callable[[str, str], CannotRun]
#: Of an epoch: the rows of each batch, or all rows in one array.
Order = list[npt.NDArray[np.int64]]
_END: Final = object()
#: Batches of an epoch over a dataset that does not say how long it is.
ENDLESS: Final = 1_000_000


class LoaderReader:
    """Reads rows of the dataset.

    :param seed: The job's.
    """

    #: What numbers are of, as ``hostcore verify`` reports it; empty: of rows, in the host's order.
    unit = ""

    def __init__(self, loader: DataLoader[Any], *, seed: int) -> None:
        self.loader, self._seed = loader, seed
        self._items: ItemReader | None = None

    @property
    def count(self) -> int:
        """Rows of an epoch."""
        return len(self.loader.dataset)  # type: ignore[arg-type]

    @property
    def section(self) -> dict[str, Any]:
        """Keys of the section of a job that describes the loader."""
        section = {"rows": self.count, "batch_size": self.loader.batch_size, "shuffle": self._shuffles}
        beside = {"unit": self.unit, "workers": self.loader.num_workers}
        return section | {key: value for key, value in beside.items() if value}

    @property
    def _shuffles(self) -> bool:
        sampler: Any = self.loader.sampler
        return _kind(sampler) == "RandomSampler" or (isinstance(sampler, DistributedSampler) and sampler.shuffle)

    def check(self, refuse: Refuse) -> None:
        """Check that the order of an epoch is the same when it is drawn again; the host's is.

        :raises CannotRun: It is not, or has other rows than the dataset.
        """

    def read(self, numbers: Sequence[int], *, epoch: int, seed: int) -> Any:  # noqa: ARG002 - the order is the host's
        """Return the batch of some rows.

        :param seed: Of what is drawn for it: from the global generators, and those that the dataset holds.
        """
        return self._collated(numbers, seed)

    def _collated(self, numbers: Sequence[int], seed: int) -> Any:
        if self._items is None:
            self._items = self._made_items()
        return self._items.read(numbers, seed)

    def _made_items(self) -> ItemReader:
        return ItemReader(self.loader.dataset, self.loader.collate_fn)


class SampledReader(LoaderReader):
    """Reads rows at places in the order of the loader's sampler."""

    unit = "places of the sampler's order"

    def __init__(self, loader: DataLoader[Any], *, seed: int) -> None:
        super().__init__(loader, seed=seed)
        #: The order of an epoch.
        self._drawn: tuple[int, Order] | None = None

    @property
    def count(self) -> int:
        """Rows of an epoch, which is the length of the sampler."""
        return len(self._sampler)

    @property
    def _shuffles(self) -> bool:
        return False

    @property
    def _sampler(self) -> Any:
        return self.loader.sampler

    def check(self, refuse: Refuse) -> None:
        """Draw an epoch twice."""
        size, kind = super().count, type(self._sampler).__name__
        try:
            one, other = (self._draw(0) for _ in range(2))
        except (TypeError, ValueError) as error:
            raise refuse(
                f"a loader whose {kind} gives something else than {self._noun} by number: {error}",
                "let it give the numbers of rows, as PyTorch's samplers do",
            ) from None
        given = self._length(one)
        if given and not all(each.size and each.min() >= 0 and each.max() < size for each in one):
            raise refuse(
                f"a loader whose {kind} gives rows that its dataset of {size} does not have, or an empty batch",
                f"let it give the numbers of rows, 0 to {size - 1}",
            )
        if given != self.count or not given:
            raise refuse(
                f"a loader whose {kind} gives {given} {self._noun}, and has a length of {self.count} of the {size} "
                "of the dataset",
                f"its __len__ must be the number of {self._noun} of an epoch",
            )
        if len(one) != len(other) or any(not np.array_equal(*pair) for pair in zip(one, other, strict=True)):
            raise refuse(
                f"a loader whose {kind} gives other {self._noun} each time, whatever the seed: no run could go on "
                "exactly",
                "let it draw from the global generators, or from a torch.Generator in its attribute `generator`",
            )

    _noun = "rows"

    def read(self, numbers: Sequence[int], *, epoch: int, seed: int) -> Any:
        """Return the batch of the rows at some places."""
        (order,) = self._order(epoch)
        return self._collated(order[numbers].tolist(), seed)

    def _order(self, epoch: int) -> Order:
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, self._draw(epoch)
        return self._drawn[1]

    def _draw(self, epoch: int) -> Order:
        """Return the order of an epoch, which follows from the job's seed and the epoch alone."""
        own = _seed_of(self._seed, epoch)
        with seeded(own):
            one: Any
            for one in (self._sampler, getattr(self._sampler, "sampler", None)):
                seed_each(generators_in(one), own)
                if isinstance(generator := getattr(one, "generator", None), torch.Generator):
                    generator.manual_seed(own)
                if hasattr(one, "set_epoch"):
                    one.set_epoch(epoch)
            return self._iterated()

    def _iterated(self) -> Order:
        return [np.fromiter(self._sampler, np.int64)]

    def _length(self, order: Order) -> int:
        return len(order[0])


class BatchReader(SampledReader):
    """Reads batches of the loader's batch sampler; the host takes one at a time."""

    unit = "batches of the batch sampler"

    _noun = "batches"

    @property
    def _sampler(self) -> Any:
        return self.loader.batch_sampler

    @property
    def section(self) -> dict[str, Any]:
        """Keys of the section of a job: a row of it is a batch."""
        return super().section | {"batch_size": 1}

    def read(self, numbers: Sequence[int], *, epoch: int, seed: int) -> Any:
        """Return a batch."""
        return self._collated(self._order(epoch)[_alone(numbers)].tolist(), seed)

    def _iterated(self) -> Order:
        return [np.fromiter(batch, np.int64) for batch in self._sampler]

    def _length(self, order: Order) -> int:
        return len(order)


class WholeReader(BatchReader):
    """Reads batches that the dataset makes itself, of the number or the list of numbers that the sampler gives it."""

    unit = "batches of the sampler"

    @property
    def _sampler(self) -> Any:
        return self.loader.sampler

    def _made_items(self) -> ItemReader:
        dataset: Any = self.loader.dataset
        return ItemReader(dataset, self.loader.collate_fn, get_items=dataset.__getitem__)

    def _iterated(self) -> Order:
        return [np.asarray(one, np.int64) for one in self._sampler]


class StreamReader(LoaderReader):
    """Reads the batches of an ``IterableDataset``, one after the other, and from the beginning where one is behind.

    A pass begins with the generators in a state that follows from seed and epoch, so that the batches are the same
    again. When it ends before the epoch does, another one begins.
    """

    _noun = "batches of the iterable dataset"

    def __init__(self, loader: DataLoader[Any], *, seed: int) -> None:
        super().__init__(loader, seed=seed)
        self._begin_with(states_of(loader.dataset, goes_back=True))

    def _begin_with(self, states: StreamStates | None) -> None:
        self._epoch = self._place = -1
        self._batches: Iterator[Any] = iter(())
        self._turn = 0
        #: States of the source; None if it has none.
        self._states = states
        #: Where a checkpoint says that the pass may go on.
        self._given: dict[str, Any] | None = None
        self._expected: dict[int, str] = {}
        self._warn: Callable[[str], None] = lambda _: None
        #: Of the generators behind the present batch.
        self._seed_next: int | None = None

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Name of what is counted."""
        return self._noun if self._states is None else f"{self._noun}, which has a state_dict"

    @property
    def count(self) -> int:
        """Batches of an epoch."""
        try:
            return len(self.loader)
        except TypeError:
            return ENDLESS

    @property
    def section(self) -> dict[str, Any]:
        """Keys of the section of a job: a row of it is a batch."""
        return {"rows": self.count, "batch_size": 1, "shuffle": False, "unit": self.unit}

    def read(self, numbers: Sequence[int], *, epoch: int, seed: int) -> Any:  # noqa: ARG002 - a pass has a seed
        """Return a batch; those before it are read as well, from the last state on."""
        number = _alone(numbers)
        if epoch != self._epoch or number <= self._place:
            self._begin(epoch, number)
        while self._place < number:
            batch = next(self._batches)
            self._place += 1
            if self._states is not None and not self._is_noted(batch, self._states):
                self._begin(epoch, number)
        return batch

    def state_before(self, epoch: int, number: int) -> dict[str, Any] | None:
        """Return what :meth:`go_on_from` takes, for the batch that comes next; None: it is read from the beginning."""
        return None if self._states is None else self._states.before(epoch, number)

    def go_on_from(self, state: dict[str, Any] | None, warn: Callable[[str], None]) -> None:
        """Let the epoch of a state go on from there.

        :param warn: Called if the source does not give the batches again that it has given behind the state.
        """
        self._given, self._warn = state, warn
        self._epoch = self._place = -1

    def _begin(self, epoch: int, number: int) -> None:
        given, self._given = self._given, None  # once: going back within an attempt reads from the beginning
        start = given if given and given["epoch"] == epoch and given["number"] < number else None
        self._epoch, self._place, self._expected = epoch, -1, {}
        if self._states is not None:
            self._states.clear()
            if start is not None:
                self._place = start["number"]
                self._expected = dict(enumerate(start["digests"], self._place + 1))
                self._states.take(epoch, start["turn"], self._place, state=start["state"])
        self._batches = self._passes(epoch, start)

    def _is_noted(self, batch: Any, states: StreamStates) -> bool:
        """Note a batch; return False if it is not the one that came here before."""
        if not states.is_lost or self._place in self._expected:
            found = states.note(self._place, batch)
            if self._expected.pop(self._place, found) != found:
                self._warn(
                    f"{type(states.source).__name__} gives other batches behind load_state_dict than before: its pass "
                    "is read from the beginning"
                )
                return False
        if (self._place + 1) % EVERY == 0:
            if not states.is_lost:
                states.take(self._epoch, self._turn, self._place)
            self._seed_next = _seed_of(self._seed, self._epoch, self._turn, self._place)
        return True

    def _passes(self, epoch: int, start: dict[str, Any] | None) -> Iterator[Any]:
        self._turn = 0 if start is None else start["turn"]
        while True:
            is_empty = start is None
            for batch in self._pass(_seed_of(self._seed, epoch, self._turn), start):
                is_empty = False
                yield batch
            if is_empty:
                of = getattr(self.loader, "dataset", self.loader)
                raise InvalidData(f"{type(of).__name__} gives no batch to train on or to evaluate")
            self._turn += 1
            start = None

    def _found_generators(self) -> list[Any]:
        return generators_in(self.loader.dataset, self.loader.collate_fn)

    def _pass(self, seed: int, start: dict[str, Any] | None) -> Iterator[Any]:
        """The batches of a pass. What it draws goes on where its last batch has left the generators."""
        with seeded(seed):
            seed_each(self._found_generators(), seed)
            batches = self._iterated_batches(None if start is None else start["state"])
            states = random_states()
        self._seed_next = None
        if start is not None:
            self._seed_next = _seed_of(self._seed, start["epoch"], start["turn"], start["number"])
        while True:
            if self._seed_next is not None:  # as behind the state that another attempt begins from
                with seeded(self._seed_next):
                    seed_each(self._found_generators(), self._seed_next)
                    states, self._seed_next = random_states(), None
            with random_states_kept():
                set_random_states(states)
                batch = next(batches, _END)
                states = random_states()
            if batch is _END:
                return
            yield batch

    def _iterated_batches(self, state: Any) -> Iterator[Any]:
        if self._states is not None:
            self._states.begin(state)
        return self._in_batches(iter(self.loader.dataset))

    def _in_batches(self, rows: Iterator[Any]) -> Iterator[Any]:
        size = self.loader.batch_size
        while taken := [*islice(rows, size or 1)]:
            if size and self.loader.drop_last and len(taken) < size:
                return
            yield self.loader.collate_fn(taken if size else taken[0])


class IterableReader(StreamReader):
    """Reads the batches of an iterable that is no ``DataLoader``, of which each pass makes a new one.

    :param make: Calls the method that returned the iterable.
    """

    _noun = "batches of the iterable"

    def __init__(self, loader: Any, make: Callable[[], Iterable[Any]], *, seed: int) -> None:
        LoaderReader.__init__(self, loader, seed=seed)
        self._begin_with(states_of(loader, goes_back=False))
        self._make = make

    def _found_generators(self) -> list[Any]:
        return []

    def _iterated_batches(self, state: Any) -> Iterator[Any]:
        found = self._make()
        if self._states is not None:
            self._states.source = found
            self._states.begin(state)
        return iter(found)


def reader_of(
    loader: DataLoader[Any] | Iterable[Any], make: Callable[[], Iterable[Any]], refuse: Refuse, *, seed: int
) -> LoaderReader:
    """Return the reader of a loader.

    :param make: Returns another such loader.
    :param refuse: Makes the error, of what the loader is and a way out.
    :raises CannotRun: Its order has no length.
    """
    if not isinstance(loader, DataLoader):
        return IterableReader(loader, make, seed=seed)
    if isinstance(loader.dataset, IterableDataset):
        return StreamReader(loader, seed=seed)
    reader: type[SampledReader] = SampledReader
    sampler: Any = loader.sampler
    if loader.batch_sampler is None:
        reader = WholeReader
    elif _kind(loader.batch_sampler) != "BatchSampler":
        reader, sampler = BatchReader, loader.batch_sampler
    elif _is_of_torch(loader):
        return LoaderReader(loader, seed=seed)
    if not hasattr(sampler, "__len__"):
        kind = type(sampler).__name__
        raise refuse(f"a loader with a sampler without a length ({kind})", "give it __len__: how long an epoch is")
    return reader(loader, seed=seed)


def _is_of_torch(loader: DataLoader[Any]) -> bool:
    """Return whether a sampler selects all rows of an epoch, in order or shuffled."""
    sampler: Any = loader.sampler
    if _kind(sampler) in ("SequentialSampler", "DistributedSampler", "StatefulDistributedSampler"):
        return True
    rows: Any = loader.dataset
    return _kind(sampler) == "RandomSampler" and not sampler.replacement and len(sampler) == len(rows)


def _kind(sampler: object) -> str:
    """Return the name of a sampler's class; of none of torch's, or of torchdata's that do the same, nothing."""
    cls = type(sampler)
    known = (SequentialSampler, RandomSampler, DistributedSampler, BatchSampler)
    return cls.__name__ if cls in known or cls.__module__ == "torchdata.stateful_dataloader.sampler" else ""


def _alone(numbers: Sequence[int]) -> int:
    if len(numbers) != 1:
        raise InvalidData(
            f"{len(numbers)} batches of the loader are asked for at once",
            hint='write "batch_size": 1 in their section of the job: a row is a batch that the loader makes',
        )
    return numbers[0]


def _seed_of(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
