"""The data source ``mix``: data of other sources, drawn from in proportions. The host does that; see ``Mixture``."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import attrs
import pyarrow as pa
from annotated_types import Ge

from hostcore_builtin_plugins.sources.file_dataset import job_pointer
from hostcore_hookspecs import (
    DataContext,
    Dataset,
    DatasetPart,
    InvalidData,
    InvalidSettings,
    Mixture,
    MixtureStage,
    Shard,
)

#: Of a smaller share, the host draws no row.
_MOST_ROWS: Final = 65_536


@attrs.frozen(kw_only=True)
class StageWeights:
    """Weights up to a step."""

    until: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "The last step that they hold for."})
    weights: tuple[Annotated[float, Ge(0)], ...] = attrs.field(
        metadata={"help": "One for each part, in their order; 0: none of its rows."}
    )


class MixSource:
    """Opens data of other sources as one dataset."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Proportions over time. The parts and their weights are under ``of``."""

        stages: tuple[StageWeights, ...] = attrs.field(
            default=(), metadata={"help": "Other weights up to some step each, in the order of the steps."}
        )
        exhausted: Literal["repeat", "stop", "drop"] = attrs.field(
            default="repeat",
            metadata={
                "help": "Where a part has been read: `repeat` reads it again in another order, until all have been; "
                "`stop` ends the epoch; `drop` goes on with the others."
            },
        )

    def __init__(self, *, settings: Settings) -> None:
        if settings.stages and settings.exhausted == "stop":
            message = '"stop" and "stages" do not go together: how long an epoch is would depend on the stage'
            hint = 'leave one of them out, or write "exhausted": "repeat" and "max_steps"'
            raise InvalidSettings("/exhausted", message, hint=hint)
        for index, (one, following) in enumerate(pairwise(settings.stages), 1):
            if one.until >= following.until:
                message = f"the stage ends at step {following.until:,}, and the one before it at {one.until:,}"
                raise InvalidSettings(f"/stages/{index}/until", message, hint="list the stages as they follow")
        for index, stage in enumerate(settings.stages):
            if not any(stage.weights):
                message = "a stage draws from one part at least, and all of its weights are 0"
                raise InvalidSettings(f"/stages/{index}/weights", message, hint="raise one of them")
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "MixedDataset":  # noqa: ARG002
        """Put the parts behind each other."""
        parts, settings = ctx.parts, self._settings
        if not parts:
            hint = 'give parts: "of": [{"name": "web", "parquet_paths": ["web"], "weight": 0.7}]'
            raise InvalidSettings("/of", "a mixture has no data of its own", hint=hint)
        if ctx.split != "train" and (settings != MixSource.Settings() or len({part.weight for part in parts}) > 1):
            pointer = "/stages" if settings.stages else "/of" if settings == MixSource.Settings() else "/exhausted"
            message = f"the {ctx.split} data is read once, part after part: proportions change nothing there"
            raise InvalidSettings(pointer, message, hint='leave out "weight", "stages" and "exhausted"')
        _check_weights([part.weight for part in parts], parts, "/of/{}/weight")
        for index, stage in enumerate(settings.stages):
            if len(stage.weights) != len(parts):
                message = f"the stage has {len(stage.weights)} weights for {len(parts)} parts"
                hint = f"give one for each of {', '.join(part.name for part in parts)}"
                raise InvalidSettings(f"/stages/{index}/weights", message, hint=hint)
            _check_weights(stage.weights, parts, f"/stages/{index}/weights/{{}}")
        opened = MixedDataset(parts, pointer=job_pointer(ctx))
        opened.mixture = Mixture(
            names=tuple(part.name for part in parts),
            shards=tuple(len(part.dataset.shards()) for part in parts),
            weights=tuple(part.weight for part in parts),
            stages=tuple(MixtureStage(until=one.until, weights=one.weights) for one in settings.stages),
            exhausted=settings.exhausted,
        )
        return opened


def _check_weights(weights: Sequence[float], parts: Sequence[DatasetPart], pointer: str) -> None:
    for index, weight in enumerate(weights):
        if 0 < weight < sum(weights) / _MOST_ROWS:
            message = f"{weight:g} of {sum(weights):g} is less than a row of {_MOST_ROWS:,} for {parts[index].name!r}"
            raise InvalidSettings(pointer.format(index), message, hint="raise the weight, or take the part out")


class MixedDataset:
    """The shards of several datasets with the same columns, one dataset behind the other.

    :param parts: At least one.
    :param pointer: Where the job has the data.
    :raises InvalidData: When the parts differ in their columns.
    """

    mixture: Mixture

    def __init__(self, parts: Sequence[DatasetPart], *, pointer: str) -> None:
        first = parts[0]
        self.schema: pa.Schema = first.dataset.schema
        self.allow_nulls = bool(getattr(first.dataset, "allow_nulls", False))
        self.text_version = max(getattr(part.dataset, "text_version", "") for part in parts)
        #: The shards, with where each comes from.
        self._shards: dict[str, tuple[Shard, Dataset, Shard]] = {}
        for index, part in enumerate(parts):
            self._require_like(first, part, f"{pointer}/of/{index}")
            if not any(shard.num_rows for shard in part.dataset.shards()):
                message, hint = f"the part {part.name!r} has no rows", "take it out of the mixture, or add data"
                raise InvalidData(message, pointer=f"{pointer}/of/{index}", hint=hint)
            for own in part.dataset.shards():
                # Two parts may read the same file.
                shard = own if own.id not in self._shards else attrs.evolve(own, id=f"{part.name}: {own.id}")
                self._shards[shard.id] = (shard, part.dataset, own)

    def _require_like(self, first: DatasetPart, part: DatasetPart, pointer: str) -> None:
        if bool(getattr(part.dataset, "allow_nulls", False)) != self.allow_nulls:
            message = f'"allow_nulls" of {part.name!r} is not that of {first.name!r}'
            raise InvalidData(message, pointer=pointer, hint="give it to all parts, or to none")
        schema, hint = part.dataset.schema, 'name the columns that all parts have: "columns", beside "of"'
        difference = None
        for name in dict.fromkeys([*self.schema.names, *schema.names]):
            if name not in schema.names or name not in self.schema.names:
                has, lacks = (first, part) if name in self.schema.names else (part, first)
                difference = f"column {name!r} is in {has.name!r} and not in {lacks.name!r}"
            elif (own := schema.field(name).type) != (other := self.schema.field(name).type):
                difference = f"column {name!r} is {other} in {first.name!r} and {own} in {part.name!r}"
                hint = "write it as the same type everywhere, or leave it out of 'columns'"
            if difference:
                raise InvalidData(f"the parts of the mixture differ: {difference}", pointer=pointer, hint=hint)

    def shards(self) -> Sequence[Shard]:
        """All shards, part after part."""
        return [shard for shard, _, _ in self._shards.values()]

    def read_shard(self, shard: Shard, columns: Sequence[str] | None, offset: int) -> Iterator[pa.RecordBatch]:
        """Read a shard. See :class:`hostcore_hookspecs.Dataset`."""
        _, dataset, own = self._shards[shard.id]
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        for batch in dataset.read_shard(own, names, offset):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
