"""Items of a map-style ``torch.utils.data.Dataset``: their numbers for the host, and the items for a trainer.

The host orders, resumes and proves the numbers as other rows. :func:`dataset_items` reads the items in
``transform_batch``, where processes work ahead of the loop.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hostcore_hookspecs import ImportPath, InvalidData, InvalidSettings, Shard, StepContext
from hostcore_toolkit.draws import generators_in, seed_each, seeded

#: The one column.
INDEX: Final = "index"
#: 64 KiB of numbers. A larger dataset has several shards, so that it is shuffled across its whole length.
_SHARD_ROWS: Final = 8_192


class ItemNumbers:
    """The numbers from 0 up to a length, as the int64 column ``index``.

    :param unit: See :class:`hostcore_hookspecs.Dataset`.
    :param metadata: Of the schema.
    :param version: Changes whenever the items do.
    """

    def __init__(
        self, length: int, *, unit: str = "", metadata: Mapping[bytes, bytes] | None = None, version: str = "1"
    ) -> None:
        self.unit = unit
        self.schema = pa.schema([pa.field(INDEX, pa.int64())], metadata=metadata)
        self._shards = [
            Shard(id=f"indices#{first}", num_rows=min(_SHARD_ROWS, length - first), version=version)
            for first in range(0, length, _SHARD_ROWS)
        ]

    def shards(self) -> Sequence[Shard]:
        """All shards, in order."""
        return self._shards

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """The rest of a shard. See :class:`hostcore_hookspecs.Dataset`."""
        start = int(shard.id.partition("#")[2])
        rows = shard.num_rows - offset
        buffer = pa.py_buffer(np.arange(start + offset, start + shard.num_rows))
        numbers = pa.Array.from_buffers(pa.int64(), rows, [None, buffer])  # pa.array() would import pandas
        yield pa.RecordBatch.from_arrays([numbers], schema=self.schema)


class ItemReader:
    """Reads items of a dataset by number, as one batch.

    :param collate: Makes a batch of a list of items.
    :param get_items: Returns the items of some numbers; by default one after the other, or with ``__getitems__``.
    """

    def __init__(
        self, dataset: Any, collate: Callable[..., Any], *, get_items: Callable[[Sequence[int]], Any] | None = None
    ) -> None:
        self._roots = dataset, collate
        self._collate = collate
        self._get_items = get_items or getattr(dataset, "__getitems__", None) or _in_turn(dataset)
        #: Random generators that the dataset and ``collate`` hold; None: not yet searched for.
        self._generators: list[Any] | None = None

    def read(self, numbers: Sequence[int], seed: int) -> Any:
        """Return the batch of some items.

        :param seed: Of what is drawn for it: from the global generators, which are as before behind it, and from those
            that the dataset holds.
        """
        known = self._generators
        generators = generators_in(*self._roots) if known is None else known
        batch = self._read(numbers, generators, seed)
        if known is None:  # once more: some datasets make theirs when the first item is read
            self._generators = generators_in(*self._roots)
            if len(self._generators) > len(generators):
                batch = self._read(numbers, self._generators, seed)
        return batch

    def _read(self, numbers: Sequence[int], generators: Sequence[Any], seed: int) -> Any:
        with seeded(seed):
            seed_each(generators, seed)
            return self._collate(self._get_items(numbers))


def made_dataset(use: str, init: Mapping[str, Any], seed: int) -> Any:
    """Return the dataset that an import path names, one for the process; its draws follow from the job's seed.

    :param use: A class, a function that returns a dataset, or a dataset.
    :param init: Arguments of the class or function.
    :raises InvalidSettings: It cannot be made of these; at ``/init``.
    """
    return _made(use, _json(init), seed)


def dataset_items(raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext) -> Any:
    """Return the items of a batch of the source ``torch``, collated. For ``transform_batch``, with its arguments.

    What the dataset draws, from global generators or from its own, follows from ``rng``: an augmentation is another
    one in each epoch, and the same in a run that was resumed, for any number of ``workers``.

    :raises InvalidData: The data of the split is of another source.
    """
    job = ctx.job
    section = {"train": job.dataset, "validation": job.validation, "test": job.test}[ctx.split] or {}
    if "fraction" in section:
        section = job.dataset or {}
    if "use" not in section:
        raise InvalidData(
            'dataset_items() reads items of the data source "torch" alone',
            pointer="/dataset" if ctx.split == "train" else f"/{ctx.split}",
            hint="in place of a mixture, name one Dataset that has the items of all, such as a ConcatDataset",
        )
    reader = _reader(section["use"], _json(section.get("init", {})), section.get("collate"), job.seed)
    return reader.read(raw_batch.column(INDEX).to_pylist(), int(rng.integers(2**32)))


@lru_cache(maxsize=8)
def _reader(use: str, init: str, collate: str | None, seed: int) -> ItemReader:
    from torch.utils.data import default_collate

    found: Callable[..., Any] = ImportPath[Any](collate).load() if collate else default_collate
    return ItemReader(_made(use, init, seed), found)


@lru_cache(maxsize=8)
def _made(use: str, init: str, seed: int) -> Any:
    found, arguments = ImportPath[Any](use).load(), json.loads(init)
    if not callable(found):
        if arguments:
            raise InvalidSettings("/init", f"{use} is a dataset, which takes no arguments", hint="remove init")
        return found
    try:
        inspect.signature(found).bind(**arguments)
    except TypeError as error:
        hint = f"it takes {inspect.signature(found)}"
        raise InvalidSettings("/init", f"{use} cannot be made of this: {error}", hint=hint) from None
    except ValueError:  # it has no signature, being written in C
        pass
    with seeded(seed):
        return found(**arguments)


def _json(init: Mapping[str, Any]) -> str:
    return json.dumps(init, sort_keys=True)


def _in_turn(dataset: Any) -> Callable[[Sequence[int]], list[Any]]:
    return lambda numbers: [dataset[one] for one in numbers]
