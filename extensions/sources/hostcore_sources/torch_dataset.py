"""The data source ``torch``: a map-style ``torch.utils.data.Dataset``, by its import path.

The rows are the numbers of its items. A trainer reads the items with ``hostcore_toolkit.dataset_items``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from hostcore_hookspecs import DataContext, ImportPath, InvalidSettings

if TYPE_CHECKING:
    from hostcore_toolkit.items import ItemNumbers


class TorchSource:
    """Opens a dataset of the user's code for its length."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The dataset, and how its items become a batch."""

        use: ImportPath[Any] = attrs.field(
            metadata={"help": "The class, a function that returns a dataset, or a dataset: `flowers:Flowers`."}
        )
        init: Mapping[str, Any] = attrs.field(
            factory=dict, metadata={"help": "What the class or function is given, by name."}
        )
        collate: ImportPath[Callable[..., Any]] | None = attrs.field(
            default=None,
            metadata={"help": "Makes a batch of a list of items; by default PyTorch's `default_collate`."},
        )

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    def open_dataset(self, dataset: Mapping[str, Any], ctx: DataContext) -> "ItemNumbers":
        """Make the dataset, for its length.

        :raises InvalidSettings: It cannot be made of these arguments, is not map-style, or the job asks for a column.
        """
        for place, name in enumerate(dataset.get("columns") or ()):
            if name != "index":
                hint = "leave columns out: dataset_items() gives whole items"
                raise InvalidSettings(f"/columns/{place}", f"the data has no column {name!r}", hint=hint)
        from hostcore_toolkit.items import ItemNumbers, made_dataset

        settings = self._settings
        opened = made_dataset(str(settings.use), settings.init, ctx.seed)
        kind = type(opened).__name__
        if not hasattr(opened, "__getitem__") or not hasattr(opened, "__len__"):
            lacks = "__getitem__" if hasattr(opened, "__len__") else "__len__"
            message = f"{settings.use} is a {kind} without {lacks}: no item of it can be sought again"
            raise InvalidSettings("/use", message, hint="name a map-style dataset, with __getitem__ and __len__")
        try:
            length = len(opened)
        except TypeError as error:
            message = f"{settings.use} is a {kind} without a length: {error}"
            raise InvalidSettings("/use", message, hint="name a map-style dataset, with __len__") from error
        return ItemNumbers(length, version=str(getattr(opened, "version", "")))
