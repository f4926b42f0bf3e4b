"""Start-up: everything that can be known before the run begins is checked here, and only here.

``hostcore run`` starts only a job that passes; ``hostcore validate`` stops here and shows the findings. A worker that
only checks a job imports torch only if a plugin or a device of the job needs it.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from hostcore.errors import described
from hostcore.job.load import load_job
from hostcore.job.names import BUILTIN, DATA_SECTIONS
from hostcore.job.paths import is_uri
from hostcore.job.rules import job_warnings
from hostcore.job.sections import DatasetSpec
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.contract import deprecation_warnings
from hostcore.plugins.errors import as_content, named
from hostcore.plugins.hooks import Hooks
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.load import Component
from hostcore.plugins.provenance import other_code, provenance
from hostcore.plugins.resolve import Selected
from hostcore.plugins.tracing import Trace
from hostcore.runs.contract import WorkerContract
from hostcore.runs.documents import read_document
from hostcore.runs.record import SCHEMA, RunRecord
from hostcore.runs.result import INVALID, SUCCEEDED
from hostcore.worker.checkpoints.resuming import ResumeSearch, find_named, find_resume_point
from hostcore.worker.devices import available_devices, check_precision, checked_device, name_of_device, torch_version
from hostcore.worker.feed.evaluation import EvaluationFeed
from hostcore.worker.feed.feed import Feed
from hostcore.worker.feed.transform import check_workers
from hostcore.worker.line import SupervisorLine
from hostcore.worker.loading import Loading, Sources, blame_trainer
from hostcore.worker.ranks.rank_info import RankInfo
from hostcore_hookspecs import HostcoreError, Job, SampleRequest
from hostcore_hookspecs.data_source import Dataset


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """A job that may start: its components, its opened data and its device."""

    #: With the sections of data that the trainer brings.
    spec: JobSpec
    #: The sections that the trainer brings, by name, as plain JSON.
    brought: Mapping[str, Any]
    job: Job
    hooks: Hooks
    trainer: Component
    callbacks: Sequence[Component]
    components: Sequence[Component]
    #: The uses that the components were made of.
    selected: Sequence[Selected]
    #: Where the job has the settings of each component, by its use.
    pointers: Mapping[str, str]
    #: As torch calls it here.
    device: str
    #: Names of the GPUs of this process in the job; empty: the same.
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
    #: The checkpoint that the run resumes from.
    resume: ResumeSearch
    total_steps: int

    @property
    def device_name(self) -> str:
        """Return the name of the device in the job."""
        return name_of_device(self.device, self.held)

    @property
    def job_warnings(self) -> Sequence[HostcoreError]:
        """Return warnings about probable mistakes in the job. Data that the trainer brings is no mistake of the job."""
        warnings = [one for one in job_warnings(self.spec) if (one.pointer or "").removeprefix("/") not in self.brought]
        if self.job.sample_every and not self.sample_requests:
            message = f'"sample_every" is {self.job.sample_every:,}, but the trainer has no generate_sample'
            hint = 'give it one, or remove "sample_every"'
            warnings.append(HostcoreError(message, code="samples.none", pointer="/sample_every", hint=hint))
        return warnings

    @property
    def sample_requests(self) -> Sequence[SampleRequest]:
        """Requests of each set of samples; none for a trainer that generates nothing."""
        return self.job.samples if "generate_sample" in self.trainer.hook_names else ()

    def locate(self, error: HostcoreError) -> HostcoreError:
        """Return an error; one in data of the trainer names the trainer."""
        blame_trainer(error, self.brought, self.trainer)
        return error

    def summary(self) -> dict[str, Any]:
        """Return the findings for the supervisor and ``hostcore validate``; plain JSON."""
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
            "brought": dict(self.brought),
            "feed_bytes": self.feed.memory_bytes,
            "warnings": [*self.feed.warnings(), *map(described, self.job_warnings)],
            "job_warnings": [one.as_dict() for one in self.job_warnings],
            "other_code": [one for component in self.components if (one := other_code(component.ref)) is not None],
            "deprecated": list(deprecation_warnings((one.ref, one.implementations) for one in self.components)),
            "num_shards": len(self.dataset.shards()) if self.dataset else 0,
            "plugins": [attrs.asdict(provenance(component.ref)) for component in self.components],
            "environment": _environment(),
        }


def read_job(contract: WorkerContract, *, world_size: int) -> tuple[JobSpec, Discovered]:
    """Return the job of a contract, and the plugins that its names stand for.

    A run's record has both, as the supervisor planned them. Names in a plain job file, which another host may have
    written, stand for what is installed.
    """
    path = Path(contract.job_spec_path)
    if read_document(path).get("schema") == SCHEMA:
        record = RunRecord.read(path)
        spec, plugins = record.spec(world_size=world_size), record.selectable()
    else:
        spec, plugins = load_job(path, world_size=world_size), discover()
    spec = attrs.evolve(spec, trainer=contract.trainer_plugin)
    return _handed_over(spec, contract.arrow_ipc_path) if contract.arrow_ipc_path else spec, plugins


def _handed_over(spec: JobSpec, path: str) -> JobSpec:
    """Return the job with training data of another process; batch size, order and columns are those of the job."""
    if spec.dataset is not None and spec.dataset.arrow_path == path:
        return spec
    handed: dict[str, Any] = {"source": f"{BUILTIN}arrow", "settings": {"paths": [path]}}
    dataset = attrs.evolve(spec.dataset, **handed) if spec.dataset is not None else DatasetSpec(**handed)
    return attrs.evolve(spec, dataset=dataset, mock_batches=None)


def prepare(contract: WorkerContract, rank_info: RankInfo) -> Prepared:
    """Check a job, make its components and open its data, short of calling the trainer.

    :raises Errors: Everything that is wrong with it.
    """
    loaded = Loading(contract, *read_job(contract, world_size=rank_info.world_size), rank_info)
    spec, found, hooks, components = loaded.spec, loaded.found, loaded.hooks, loaded.components
    job = job_view(spec)
    if spec.deterministic:  # torch refuses cuBLAS without it, and looks once, as early as the check below
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    handles = found.check(lambda: _model_handles(contract, spec))
    select_device = partial(_select_device, spec, job, rank_info=rank_info, held=contract.devices)
    device = found.check(lambda: select_device(hooks), components) if hooks else None
    if device is not None:
        found.check(lambda: check_precision(spec.precision, device))
    sources = Sources(spec, hooks, components, rank_info, contract.run_dir) if hooks and loaded.has_valid_data else None
    opened = found.check(sources.training, components) if sources else None
    validation = found.check(lambda: sources.evaluation("validation"), components) if sources else None
    test = found.check(lambda: sources.evaluation("test"), components) if sources else None
    if loaded.trainer is not None:
        found.errors += missing_capabilities(loaded.trainer, spec)
        for key in DATA_SECTIONS:
            data = getattr(spec, key)
            found.check(partial(check_workers, loaded.trainer, data.workers if data else 0, key=key))
    resume = found.check(lambda: _find_resume_point(contract, spec, opened[1], rank_info)) if opened else None
    loaded.raise_errors()
    assert handles is not None
    assert hooks is not None
    assert device is not None
    assert opened is not None
    assert resume is not None
    assert loaded.trainer is not None
    dataset, feed = opened
    return Prepared(
        spec=spec,
        brought=loaded.brought,
        job=_with_steps_of_epoch(job, spec, feed),
        hooks=hooks,
        trainer=loaded.trainer,
        callbacks=[one for one in components if one.ref.kind == "callback"],
        components=components,
        selected=loaded.selected,
        pointers={one.use: one.pointer for one in loaded.selected},
        device=device,
        held=contract.devices,
        dataset=dataset,
        feed=feed,
        validation=validation,
        test=test,
        rank_info=rank_info,
        trace=loaded.trace,
        handles=handles,
        resume=resume,
        total_steps=_total_steps(spec, feed),
    )


def _find_resume_point(contract: WorkerContract, spec: JobSpec, feed: Feed, rank_info: RankInfo) -> ResumeSearch:
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
    """Return the inputs that the supervisor has fetched, with weights that lie on this machine."""
    if not spec.weights or is_uri(spec.weights) or "weights" in contract.inputs:
        return contract.inputs
    if not Path(spec.weights).exists():
        raise HostcoreError(
            "the initial weights are not there", code="weights.missing", pointer="/weights", file=spec.weights
        )
    return {**contract.inputs, "weights": spec.weights}


def _select_device(spec: JobSpec, job: Job, hooks: Hooks, *, rank_info: RankInfo, held: Sequence[str]) -> str:
    devices = spec.requested_devices
    asked = devices[rank_info.local_rank % len(devices)]
    if asked == "cpu":  # is always there; what else is may be known to torch alone
        return asked
    available = available_devices()
    if asked == "cuda" and rank_info.world_size > 1:
        asked = f"cuda:{rank_info.local_rank}"
    if asked != "auto":
        return checked_device(asked, available, held=held, pointer="/devices" if spec.devices else "/device")
    choose = hooks.bind("select_device")
    chosen = choose and choose(job, available, rank_info.local_rank)
    return checked_device(chosen or _best(available, rank_info.local_rank), available)


def _best(available: Sequence[str], local_rank: int) -> str:
    """Return the best device; another for each rank of a machine, if there are several."""
    kind = available[0].partition(":")[0]
    alike = [one for one in available if one.partition(":")[0] == kind]
    return alike[local_rank % len(alike)]


def _total_steps(spec: JobSpec, feed: Feed) -> int:
    limits = [spec.max_steps or math.inf]
    if spec.epoch_limit is not None and feed.steps_per_epoch is not None:
        limits.append(spec.epoch_limit * feed.steps_per_epoch)
    return int(min(limits))


def _with_steps_of_epoch(job: Job, spec: JobSpec, feed: Feed) -> Job:
    """Return the job, with the steps of an epoch where a checkpoint is due after each."""
    return attrs.evolve(job, checkpoint_every=feed.steps_per_epoch or 0) if spec.checkpoint_every == "epoch" else job


def _environment() -> dict[str, Any]:
    """Return versions of Python and torch; with the threads of torch, if anything has imported it."""
    versions = {"python": sys.version.partition(" ")[0], "torch": getattr(torch_version(), "__version__", None)}
    torch = sys.modules.get("torch")
    return versions if torch is None else {**versions, "torch": torch.__version__, "threads": torch.get_num_threads()}


def missing_capabilities(trainer: Component, spec: JobSpec) -> Iterator[HostcoreError]:
    """Yield an error for each requirement of the job that the trainer does not declare or implement."""
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
        yield _missing(trainer, "/devices", message, "name a single device or, for an engine, one node and one GPU")
    needs = {
        "/validation": (spec.validation is not None, "validate_step"),
        "/test": (spec.test is not None, "test_step"),
        "/samples": (bool(spec.samples), "generate_sample"),
    }
    for pointer, (needed, method) in needs.items():
        if needed and method not in trainer.hook_names:
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


def needs_training(contract_path: Path) -> bool:
    """Return whether a worker trains or evaluates; False too for a contract that it cannot follow."""
    try:
        return not WorkerContract.read(contract_path).only_check
    except HostcoreError:
        return False


def check(contract_path: Path, line: SupervisorLine) -> tuple[WorkerContract, Prepared] | None:
    """Check a job, and report to the supervisor that it is ready to start, or its errors.

    :return: None after errors.
    """
    try:
        contract = WorkerContract.read(contract_path)
        if contract.programs_python:
            os.environ.update(_with_first(Path(contract.programs_python), os.environ))
        prepared = prepare(contract, RankInfo.of(os.environ))
    except HostcoreError as error:
        report_invalid(line, error)
        return None
    line.send("ready", prepared.summary())
    return contract, prepared


def _with_first(python: Path, around: Mapping[str, str]) -> dict[str, str]:
    """Return variables of the environment in which programs find a Python, and its neighbours, before any other.

    As when a virtual environment is activated: https://docs.python.org/3/library/venv.html#how-venvs-work.

    :param around: Those of this process.
    """
    folder, rest = str(python.parent), around.get("PATH", os.defpath)
    return {"PATH": f"{folder}{os.pathsep}{rest}", "VIRTUAL_ENV": str(python.parents[1])}


def only_check(contract_path: Path, line: SupervisorLine) -> int:
    """Check a job, and wait to be ended.

    :return: The worker's exit code.
    """
    if check(contract_path, line) is None:
        return INVALID
    line.wait_for_go()
    return SUCCEEDED


def report_invalid(line: SupervisorLine, error: HostcoreError) -> None:
    """Report errors of the job to the supervisor."""
    line.send("invalid", as_content(error))
