"""The data that a job names, opened for one of the ranks."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hostcore.job.spec import DatasetSpec, JobSpec
from hostcore.plugins.component import Component
from hostcore.plugins.hooks import Hooks
from hostcore.runs.directory import cache_dir
from hostcore.worker.feed.evaluation import EvaluationFeed, evaluation_feed
from hostcore.worker.feed.feed import Feed, dataset_feed, mock_feed
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs import DataContext, InvalidData, InvalidSettings
from hostcore_hookspecs.data_source import Dataset

T = TypeVar("T")


class Sources:
    """Opens the data that a job names.

    :param components: Among others, the data sources of which the job's could be loaded.
    """

    def __init__(self, spec: JobSpec, hooks: Hooks, components: Sequence[Component], rank_info: RankInfo) -> None:
        self._spec = spec
        self._hooks = hooks
        self._rank_info = rank_info
        sources = [one for one in components if one.ref.kind == "data_source"]
        self._source_of = {one.use.rpartition("#")[2]: one for one in sources}

    def training(self) -> tuple[Dataset | None, Feed] | None:
        """The training data; None when its source could not be loaded."""
        spec, rank_info = self._spec, self._rank_info
        where = {"rank": rank_info.rank, "world_size": rank_info.world_size, "micro_batches": spec.micro_batches}
        if spec.dataset is None:
            return None, mock_feed(spec.mock_batches, **where)
        data = spec.dataset
        return self._opened(
            data,
            "dataset",
            "train",
            lambda dataset: (dataset, dataset_feed(dataset, data, seed=spec.seed, pointer="/dataset", **where)),
        )

    def evaluation(self, split: str) -> EvaluationFeed | None:
        """The validation or test data; None when there is none, or its source could not be loaded."""
        data = getattr(self._spec, split)
        if data is None:
            return None
        rank, world_size = self._rank_info.rank, self._rank_info.world_size
        return self._opened(
            data,
            split,
            split,
            lambda dataset: evaluation_feed(dataset, data, pointer=f"/{split}", rank=rank, world_size=world_size),
        )

    def _opened(self, data: DatasetSpec, key: str, split: str, feed_of: Callable[[Dataset], T]) -> T | None:
        source = self._source_of.get(split)
        if source is None:
            return None  # its own error has been collected
        open_dataset = self._hooks.bind("open_dataset", of=source)
        assert open_dataset is not None
        rank_info = self._rank_info
        context = DataContext(
            seed=self._spec.seed,
            rank=rank_info.rank,
            world_size=rank_info.world_size,
            cache_dir=str(cache_dir()),
            split=split,
        )
        try:
            return feed_of(open_dataset(data.to_json(), context))
        except InvalidSettings as error:
            error.pointer = f"/{key}{error.pointer or ''}"
            error.plugin = error.plugin or source.ref.provenance
            raise
        except InvalidData as error:
            error.pointer = error.pointer or f"/{key}"
            error.plugin = error.plugin or source.ref.provenance
            raise
