"""The data source ``indices``: the numbers of rows, for datasets that are read by index."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Ge

from hostcore_hookspecs import DataContext, InvalidData

if TYPE_CHECKING:
    from hostcore_toolkit.items import ItemNumbers

#: The one column.
INDEX: Final = "index"
#: Metadata of the schema, which mark these batches.
MARK: Final = {b"hostcore.lightning": b"indices"}


class IndicesSource:
    """Opens a dataset whose rows are their own numbers, from 0."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Number of rows, and what they are."""

        rows: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "The length of the dataset that is read by index."})
        unit: str = attrs.field(default="", metadata={"help": "What the numbers are of, if not of rows."})

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "ItemNumbers":
        """Nothing is opened.

        :raises InvalidData: The job asks for another column.
        """
        for place, name in enumerate(dataset.get("columns") or ()):
            if name != INDEX:
                section = "dataset" if ctx.split == "train" else ctx.split
                raise InvalidData(
                    f"the data has no column {name!r}", pointer=f"/{section}/columns/{place}", hint=f"it has {INDEX!r}"
                )
        from hostcore_toolkit.items import ItemNumbers

        return ItemNumbers(self._settings.rows, unit=self._settings.unit, metadata=MARK)
