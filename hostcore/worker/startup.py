"""Start-up: everything that can be known before the run begins is checked here, and only here.

``hostcore run`` starts only a job that came through; ``hostcore validate`` stops here and shows what was found.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import torch

from hostcore.errors import Errors, all_errors, described
from hostcore.interruption import is_by_signal
from hostcore.job.load import load_job
from hostcore.job.paths import is_uri
from hostcore.job.rules import job_warnings
from hostcore.job.secrets import remember_secrets
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.attribution import attribute
from hostcore.plugins.component import Component, load_component
from hostcore.plugins.deprecations import deprecation_warnings
from hostcore.plugins.discover import discover
from hostcore.plugins.errors import named
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.importing import from_exception
from hostcore.plugins.provenance import provenance
from hostcore.plugins.resolve import Selected, in_room, select
from hostcore.plugins.tracing import Trace
from hostcore.runs.contract import WorkerContract
from hostcore.runs.documents import read_document
from hostcore.runs.record import SCHEMA, RunRecord
from hostcore.worker.checkpoints.resuming import Search, find_named, find_resume_point
from hostcore.worker.devices import available_devices, check_precision, checked_device, name_of_device
from hostcore.worker.feed.evaluation import EvaluationFeed
from hostcore.worker.feed.feed import Feed
from hostcore.worker.feed.transform import check_workers
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore.worker.sources import Sources
from hostcore_hookspecs import HostcoreError, Job
from hostcore_hookspecs.data_source import Dataset

T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """A job that may start: its components made, its data opened, its device proved."""

    spec: JobSpec
    job: Job
    hooks: Hooks
    trainer: Component
    callbacks: Sequence[Component]
    components: Sequence[Component]
    #: The uses that the components were made of.
    selected: Sequence[Selected]
    #: Where the job has the settings of each component, by its use.
    pointers: Mapping[str, str]
    device: torch.device
    #: What the job calls the GPUs that this process sees; empty: the same.
    held: Sequence[str]
    dataset: Dataset | None
    feed: Feed
    #: None: the job has no data for it.
    validation: EvaluationFeed | None
    test: EvaluationFeed | None
    rank_info: RankInfo
    #: Records every call; None without tracing.
    trace: Trace | None
    #: For ``ctx.model_handles``.
    handles: Mapping[str, str]
    #: What the run goes on from.
    resume: Search
    total_steps: int

    @property
    def device_name(self) -> str:
        """What the job calls the device."""
        return name_of_device(self.device, self.held)

    def summary(self) -> dict[str, Any]:
        """What the supervisor and the plan tell about it; plain JSON."""
        return {
            "device": self.device_name,
            "precision": self.job.precision,
            "world_size": self.rank_info.world_size,
            "rows_per_step": self.feed.rows_per_step,
            "total_steps": self.total_steps,
            "steps_per_epoch": self.feed.steps_per_epoch or 0,
            "num_rows": self.feed.num_rows,
            "validation_rows": self.validation.num_rows if self.validation else 0,
            "test_rows": self.test.num_rows if self.test else 0,
            "data": dict(self.feed.identity()),
            "feed_bytes": self.feed.memory_bytes,
            "warnings": [*self.feed.warnings(), *map(described, job_warnings(self.spec))],
            "job_warnings": [one.as_dict() for one in job_warnings(self.spec)],
            "deprecated": list(deprecation_warnings(self.components)),
            "num_shards": len(self.dataset.shards()) if self.dataset else 0,
            "plugins": [attrs.asdict(provenance(component.ref)) for component in self.components],
            "environment": {
                "python": sys.version.partition(" ")[0],
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
            },
        }


class _Collector:
    """Runs checks one after the other and keeps their errors, so that all are reported at once."""

    def __init__(self, selected: Sequence[Selected]) -> None:
        self.errors: list[HostcoreError] = []
        self._named_at = {one.use: one.named_at for one in selected}

    def check(self, action: Callable[[], T], components: Sequence[Component] = ()) -> T | None:
        """Do something that may raise: the host's errors, and anything that one of the components raises."""
        try:
            return action()
        except HostcoreError as error:
            self.errors += all_errors(error)
        except BaseException as error:
            culprit = None if is_by_signal(error) else attribute(error, components)
            if culprit is None:
                raise
            pointer = self._named_at[culprit.use]
            self.errors.append(from_exception("started", error, code="plugin.start", ref=culprit.ref, pointer=pointer))
        return None

    def raise_errors(self) -> None:
        if self.errors:
            raise Errors(self.errors)


def read_job(contract: WorkerContract, *, world_size: int) -> JobSpec:
    """The job of a contract."""
    path = Path(contract.job_spec_path)
    if read_document(path).get("schema") == SCHEMA:
        spec = RunRecord.read(path).spec(world_size=world_size)
    else:
        spec = load_job(path, world_size=world_size)
    return attrs.evolve(spec, trainer=contract.trainer_plugin)


def prepare(contract: WorkerContract, rank_info: RankInfo) -> Prepared:
    """Check a job and make what it needs, short of calling the trainer.

    :raises Errors: Everything that is wrong with it.
    """
    spec = read_job(contract, world_size=rank_info.world_size)
    remember_secrets(spec.to_json())
    job = job_view(spec)
    selected = in_room(select(spec, discover()), "worker")
    found = _Collector(selected)
    handles = found.check(lambda: _model_handles(contract, spec))
    loaded = [found.check(lambda one=one: load_component(one, job_dir=spec.job_dir)) for one in selected]  # type: ignore[misc]
    components = [component for component in loaded if component is not None]
    trace = Trace() if contract.trace_path else None
    if trace is not None:
        components = [trace.of(component) for component in components]
    hooks = found.check(lambda: Hooks(components))
    select_device = partial(_select_device, spec, job, rank_info=rank_info, held=contract.devices)
    device = found.check(lambda: select_device(hooks), components) if hooks else None
    if device is not None:
        found.check(lambda: check_precision(spec.precision, device))
    sources = Sources(spec, hooks, components, rank_info) if hooks else None
    opened = found.check(sources.training, components) if sources else None
    validation = found.check(lambda: sources.evaluation("validation"), components) if sources else None
    test = found.check(lambda: sources.evaluation("test"), components) if sources else None
    trainers = [one for one in components if one.ref.kind == "trainer"]
    for one in trainers:
        found.errors += missing_capabilities(one, spec)
        for key in ("dataset", "validation", "test"):
            data = getattr(spec, key)
            found.check(lambda one=one, key=key, data=data: check_workers(one, data.workers if data else 0, key=key))  # type: ignore[misc]
    resume = found.check(lambda: _find_resume_point(contract, spec, opened[1], rank_info)) if opened else None
    found.raise_errors()
    assert handles is not None
    assert hooks is not None
    assert device is not None
    assert opened is not None
    assert resume is not None
    dataset, feed = opened
    (trainer,) = trainers
    return Prepared(
        spec=spec,
        job=job,
        hooks=hooks,
        trainer=trainer,
        callbacks=[one for one in components if one.ref.kind == "callback"],
        components=components,
        selected=selected,
        pointers={one.use: one.pointer for one in selected},
        device=device,
        held=contract.devices,
        dataset=dataset,
        feed=feed,
        validation=validation,
        test=test,
        rank_info=rank_info,
        trace=trace,
        handles=handles,
        resume=resume,
        total_steps=_total_steps(spec, feed),
    )


def _find_resume_point(contract: WorkerContract, spec: JobSpec, feed: Feed, rank_info: RankInfo) -> Search:
    if contract.evaluate:
        return find_named(Path(contract.start_from))
    search = find_resume_point(contract, spec.run_id, feed, rank=rank_info.rank)
    step = search.point.host["progress"]["step"] if search.point else 0
    if step > _total_steps(spec, feed):
        raise HostcoreError(
            f"the run is at step {step:,} already, and the job ends at step {_total_steps(spec, feed):,}",
            code="run.past_end",
            pointer="/max_steps" if spec.max_steps else "/epochs",
            hint="ask for more steps or epochs, or give a new run another run_id",
        )
    return search


def _model_handles(contract: WorkerContract, spec: JobSpec) -> Mapping[str, str]:
    """What the supervisor has fetched. Weights that lie on this machine are not fetched."""
    if not spec.weights or is_uri(spec.weights) or "weights" in contract.inputs:
        return contract.inputs
    if not Path(spec.weights).exists():
        raise HostcoreError(
            "the initial weights are not there", code="weights.missing", pointer="/weights", file=spec.weights
        )
    return {**contract.inputs, "weights": spec.weights}


def _select_device(spec: JobSpec, job: Job, hooks: Hooks, *, rank_info: RankInfo, held: Sequence[str]) -> torch.device:
    available = available_devices()
    devices = spec.requested_devices
    asked = devices[rank_info.local_rank % len(devices)]
    if asked == "cuda" and rank_info.world_size > 1:
        asked = f"cuda:{rank_info.local_rank}"
    if asked != "auto":
        return checked_device(asked, available, held=held, pointer="/devices" if spec.devices else "/device")
    choose = hooks.bind("select_device")
    chosen = choose and choose(job, available, rank_info.local_rank)
    return checked_device(chosen or _best(available, rank_info.local_rank), available)


def _best(available: Sequence[str], local_rank: int) -> str:
    """The best device; for each rank of a machine another one, if there are several."""
    kind = available[0].partition(":")[0]
    alike = [one for one in available if one.partition(":")[0] == kind]
    return alike[local_rank % len(alike)]


def _total_steps(spec: JobSpec, feed: Feed) -> int:
    limits = [spec.max_steps or math.inf]
    if spec.epoch_limit is not None and feed.steps_per_epoch is not None:
        limits.append(spec.epoch_limit * feed.steps_per_epoch)
    return int(min(limits))


def missing_capabilities(trainer: Component, spec: JobSpec) -> Iterator[HostcoreError]:
    """What the job asks for and the trainer does not declare or implement."""
    can = trainer.capabilities
    if spec.precision not in can.precisions:
        known = ", ".join(can.precisions)
        yield _missing(trainer, "/precision", f"it does not train in {spec.precision}", f"it declares: {known}")
    if spec.micro_batches > 1 and not can.accumulate:
        pointer = "/accumulate" if spec.accumulate else "/global_batch_size"
        message = f"it does not accumulate gradients, and a step has {spec.micro_batches} micro-batches"
        yield _missing(trainer, pointer, message, "its train_step takes one batch; use a larger batch_size")
    if spec.ranks > 1 and not can.distributed:
        message = f"it does not train on several ranks, and the job has {spec.ranks}"
        yield _missing(trainer, "/devices", message, "name a single device")
    needs = {
        "/validation": (spec.validation is not None, "validate_step"),
        "/test": (spec.test is not None, "test_step"),
        "/samples": (bool(spec.samples), "generate_sample"),
    }
    for pointer, (needed, method) in needs.items():
        if needed and method not in trainer.hooks:
            key = pointer.removeprefix("/")
            message, hint = f'it has no {method}, which "{key}" needs', f'give it one, or remove "{key}"'
            yield _missing(trainer, pointer, message, hint)


def _missing(trainer: Component, pointer: str, message: str, hint: str) -> HostcoreError:
    return HostcoreError(
        f"{named(trainer.ref)} cannot do this: {message}",
        code="trainer.capability",
        pointer=pointer,
        hint=hint,
        plugin=trainer.ref.provenance,
    )
