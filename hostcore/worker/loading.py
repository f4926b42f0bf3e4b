"""The components of a job, and its data, opened for one of the ranks.

Trainer and callbacks are loaded first, since the trainer may bring data and callbacks may wrap that; data sources are
loaded once it is known which.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hostcore.errors import Errors, all_errors
from hostcore.interruption import is_by_signal
from hostcore.job.data import (
    attribute_to_trainer,
    chosen_split,
    needed,
    with_sections,
    with_split_alone,
)
from hostcore.job.pointers import at_or_below, moved
from hostcore.job.rules import check_data
from hostcore.job.sections import DatasetSpec
from hostcore.job.spec import JobSpec
from hostcore.plugins.attribution import attribute
from hostcore.plugins.errors import from_exception, named
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import select
from hostcore.plugins.tracing import Trace
from hostcore.runs.contract import EITHER, WorkerContract
from hostcore.runs.directory import cache_dir
from hostcore.secrets.reference import remember_secrets
from hostcore.worker.feed.evaluation import EvaluationFeed, evaluation_feed
from hostcore.worker.feed.feed import Feed, dataset_feed, mock_feed
from hostcore.worker.feed.hash_range import with_hash_range
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs import DataContext, HostcoreError, InvalidData, InvalidSettings
from hostcore_hookspecs.data_source import Dataset, DatasetPart

T = TypeVar("T")


class Collector:
    """Runs checks one after the other and keeps their errors, so that all are reported at once."""

    def __init__(self) -> None:
        self.errors: list[HostcoreError] = []
        #: Where the job names each component, by its use.
        self.named_at: dict[str, str] = {}

    def check(self, action: Callable[[], T], components: Sequence[Component] = ()) -> T | None:
        """Run one check; errors of the host and exceptions of the components are kept. None after an error."""
        try:
            return action()
        except HostcoreError as error:
            self.errors += all_errors(error)
        except BaseException as error:
            culprit = None if is_by_signal(error) else attribute(error, components)
            if culprit is None:
                raise
            pointer = self.named_at[culprit.use]
            self.errors.append(from_exception("started", error, code="plugin.start", ref=culprit.ref, pointer=pointer))
        return None

    def raise_errors(self) -> None:
        """Raise the kept errors, if there are any."""
        if self.errors:
            raise Errors(self.errors)


class Loading:
    """The loaded components of a job, and the job with the data that its trainer brings.

    :param spec: As it was written.
    :param plugins: The plugins that its names stand for.
    :raises Errors: When plugins that it names are unknown. All other errors are in ``found``.
    """

    def __init__(self, contract: WorkerContract, spec: JobSpec, plugins: Discovered, rank_info: RankInfo) -> None:
        #: The split to evaluate, or ``either``; empty for a training.
        self._evaluate = contract.evaluate
        self._rank_info = rank_info
        self._run_dir = contract.run_dir
        # Beside the job file of another host lie its data, too.
        is_mount = Path(contract.job_spec_path).parent == Path(contract.run_dir)
        guarded = contract.checked_run_dir or ("" if is_mount else contract.run_dir)
        self._guarded = Path(guarded) if guarded else None
        self._loaded: dict[str, Component] = {}
        self.found = Collector()
        #: Records every call; None without tracing.
        self.trace = Trace() if contract.trace_path else None
        #: The sections that the trainer brings, by name: plain JSON.
        self.brought: Mapping[str, Any] = {}
        self._select(spec, plugins)
        self._load(lambda kind: kind != "data_source")
        #: None: it could not be loaded.
        self.trainer = next((one for one in self.components if one.ref.kind == "trainer"), None)
        #: Whether the data sections are present and valid, so that the data may be opened.
        self.has_valid_data = spec.has_data
        if self.trainer is not None:
            self.has_valid_data = bool(self.found.check(partial(self._add_data_of, self.trainer), self.components))
        self._load(lambda kind: kind == "data_source")
        #: None: the components do not go together.
        self.hooks = self.found.check(lambda: Hooks(self._hooked))

    @property
    def components(self) -> list[Component]:
        """Return the components that could be loaded, in the order of the job."""
        return [self._loaded[one.use] for one in self.selected if one.use in self._loaded]

    @property
    def _hooked(self) -> list[Component]:
        """Return the components whose hooks are called: an evaluation has no run that a callback could steer."""
        steers = "CHANGES_TRAINING"
        return [one for one in self.components if not (self._evaluate and getattr(one.instance, steers, False))]

    def raise_errors(self) -> None:
        """Raise the errors that were found; those in data of the trainer name the trainer."""
        for error in self.found.errors:
            if self.trainer is not None:
                blame_trainer(error, self.brought, self.trainer)
        self.found.raise_errors()

    def _select(self, spec: JobSpec, plugins: Discovered) -> None:
        remember_secrets(spec.to_json())
        self.spec, self._plugins = spec, plugins
        self.selected = select(spec, plugins, room="worker")
        self.found.named_at = {one.use: one.named_at for one in self.selected}

    def _load(self, is_due: Callable[[str], bool]) -> None:
        for one in self.selected:
            if is_due(one.ref.kind):
                load = partial(
                    load_component,
                    one,
                    job_dir=self.spec.job_dir,
                    run_dir=self._guarded,
                    import_paths=self.spec.import_paths,
                )
                component = self.found.check(load)
                if component is not None:
                    component = with_hash_range(component, self.spec)
                    self._loaded[one.use] = self.trace.of(component) if self.trace is not None else component

    def _add_data_of(self, trainer: Component) -> bool:
        """Add the data that the trainer brings to the job.

        :return: True.
        :raises Errors: When the data is invalid, or the job without it.
        """
        self.brought = from_trainer = self._data_sections(trainer)
        spec = with_sections(self.spec, self.brought)
        if self._evaluate:
            split = None if self._evaluate == EITHER else self._evaluate
            spec = with_split_alone(spec, chosen_split(spec, split))
        self.brought = {key: data.to_json() for key in self.brought if (data := getattr(spec, key)) is not None}
        if spec is not self.spec:
            self._select(spec, discover() if from_trainer else self._plugins)  # the plan cannot have its sources
        check_data(spec)
        return True

    def _data_sections(self, trainer: Component) -> Mapping[str, Any]:
        """Return the data sections that the trainer brings and the job lacks."""
        if "data_sections" not in trainer.hook_names:
            return {}
        data_sections = Hooks(self.components).bind("data_sections", of=trainer)
        assert data_sections is not None
        try:
            sections = data_sections(trainer.settings, data_context(self.spec, self._rank_info, self._run_dir))
        except HostcoreError as error:
            for one in all_errors(error):
                if isinstance(one, InvalidSettings):
                    moved(one, "/hyperparams")
                one.pointer = one.pointer or "/trainer"
                one.plugin = one.plugin or trainer.ref.provenance
            raise
        try:
            return needed(self.spec, sections)
        except HostcoreError as error:
            error.message = f"{named(trainer.ref)}: {error.message}"
            error.pointer, error.plugin = "/trainer", trainer.ref.provenance
            raise


def blame_trainer(error: HostcoreError, brought: Mapping[str, Any], trainer: Component) -> None:
    """Attribute an error in data sections of the trainer to the trainer; see :func:`attribute_to_trainer`."""
    attribute_to_trainer(error, brought, trainer=named(trainer.ref), provenance=trainer.ref.provenance)


def data_context(spec: JobSpec, rank_info: RankInfo, run_dir: str, **opens: Any) -> DataContext:
    """Return the context of a plugin that brings or opens data.

    :param opens: The ``split`` and ``parts``, if it opens one.
    """
    return DataContext(
        seed=spec.seed,
        rank=rank_info.rank,
        world_size=rank_info.world_size,
        cache_dir=str(cache_dir()),
        run_dir=run_dir,
        **opens,
    )


class Sources:
    """Opens the data that a job names.

    :param components: Among others, the data sources of which the job's could be loaded.
    :param run_dir: The run directory, absolute.
    """

    def __init__(
        self, spec: JobSpec, hooks: Hooks, components: Sequence[Component], rank_info: RankInfo, run_dir: str
    ) -> None:
        self._run_dir = run_dir
        self._spec = spec
        self._hooks = hooks
        self._rank_info = rank_info
        sources = [one for one in components if one.ref.kind == "data_source"]
        self._source_of = {one.use.rpartition("#")[2]: one for one in sources}

    def training(self) -> tuple[Dataset | None, Feed] | None:
        """Open the training data; None when its source could not be loaded."""
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
        """Open the validation or test data; None without any, or when its source could not be loaded."""
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
        uses = [split, *(f"{split}/{index}" for index in range(len(data.of or ())))]
        if any(use not in self._source_of for use in uses):
            return None  # their own errors have been collected
        parts = tuple(
            DatasetPart(
                name=part.name,
                weight=part.weight,
                dataset=self._open(data.part(part), key, split, lambda dataset: dataset, at=f"/{key}/of/{index}"),
            )
            for index, part in enumerate(data.of or ())
        )
        return self._open(data, key, split, feed_of, at=f"/{key}", parts=parts)

    def _open(
        self,
        data: DatasetSpec,
        key: str,
        split: str,
        use_it: Callable[[Dataset], T],
        *,
        at: str,
        parts: tuple[DatasetPart, ...] = (),
    ) -> T:
        """Open data, or a part of a mixture.

        :param at: Where the job has it.
        :return: What ``use_it`` makes of it.
        """
        source = self._source_of[split + at.removeprefix(f"/{key}").removeprefix("/of")]
        is_part = at != f"/{key}"
        hooks = Hooks([source]) if is_part else self._hooks  # what callbacks wrap is the whole
        open_dataset = hooks.bind("open_dataset", of=source)
        assert open_dataset is not None
        context = data_context(self._spec, self._rank_info, self._run_dir, split=split, parts=parts)
        try:
            dataset = open_dataset(data.to_json(), context)
            if parts and not hasattr(dataset, "mixture"):
                raise InvalidSettings("/of", f"{named(source.ref)} draws from no parts", hint='write "source": "mix"')
            return use_it(dataset)
        except InvalidSettings as error:
            error.pointer = f"{at}{error.pointer or ''}"
            error.plugin = error.plugin or source.ref.provenance
            raise
        except InvalidData as error:
            error.pointer = error.pointer or at
            if is_part and at_or_below(error.pointer, f"/{key}/columns"):
                error.pointer = at  # they are those of the whole, and this part lacks one
            elif is_part and not at_or_below(error.pointer, at):
                error.pointer = at + error.pointer.removeprefix(f"/{key}")
            error.plugin = error.plugin or source.ref.provenance
            raise
        except UnicodeEncodeError as error:
            encoding = sys.getfilesystemencoding()
            if encoding == "utf-8":
                raise  # not about the name of a file
            raise InvalidData(
                f"the name {error.object!r} cannot be a file's here: names of files are {encoding} in this process",
                pointer=at,
                hint="set a UTF-8 locale, such as LC_ALL=C.UTF-8, or PYTHONUTF8=1",
            ) from error
