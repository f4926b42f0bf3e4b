"""A trainer on a stage: set up by the host's own parts for its example job, before the first step, and without a loop.

A check calls the trainer's methods as the loop would, one by one, and looks in between. Much quicker than a run, and
nothing is written but into a scratch folder.
"""

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from hostcore.runs.contract import WorkerContract
from hostcore.runs.record import RunRecord
from hostcore.supervisor.plan import make_plan
from hostcore.supervisor.remote.bringing import bring_here
from hostcore_conformance.differences import parts
from hostcore_conformance.process.settings import process_kept
from hostcore_conformance.rehearsal import small_job
from hostcore_conformance.subject import Subject, installed

if TYPE_CHECKING:
    import pyarrow as pa

    from hostcore.plugins.load import Component
    from hostcore.worker.assembly import Assembly
    from hostcore.worker.feed.transform_call import TransformCall
    from hostcore.worker.training import Training
    from hostcore_hookspecs.context import StepContext

T = TypeVar("T")

#: How deep tensors are looked for in a value.
_DEPTH: Final = 8
#: Nothing runs beside the check: no threads that read ahead, no processes that transform.
_ALONE: Final[Mapping[str, Any]] = {"readahead": 0, "workers": 0}


@attrs.frozen(kw_only=True, eq=False)
class Stage:
    """The trainer, set up and configured."""

    parts: "Assembly"
    training: "Training"
    #: What ``configure`` returned.
    state: Any
    #: ``transform_batch``, as the host calls it; None if the trainer has none.
    transform: "TransformCall | None"

    @property
    def ctx(self) -> "StepContext":
        """The context of this attempt."""
        return self.parts.ctx

    @property
    def accumulates(self) -> bool:
        """True if a step takes several batches."""
        return self.training.job.accumulate > 1

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the trainer with its documented arguments, in their order."""
        return self.parts.of_trainer(method)(*arguments)

    def raw_batches(self, count: int) -> list[Any]:
        """The first batches of the training data, epoch after epoch, as they are before ``transform_batch``."""
        from hostcore.worker.feed.feed import Cursor

        found: list[Any] = []
        for epoch in range(count):
            stream = self.parts.prepared.feed.stream(Cursor(epoch=epoch))
            found += islice(iter(stream), count - len(found))
            stream.close()
            if len(found) == count:
                break
        return found

    def transformed(self, raw_batch: Any, position: int = 0) -> Any:
        """Return the argument of ``prepare_batch`` for a raw batch.

        :param position: Of its first row in the epoch.
        """
        if self.transform is None:
            return raw_batch
        return self.transform(raw_batch, 0, position, position // self.ctx.job.batch_size)

    def prepared(self, raw_batch: Any, position: int = 0) -> Any:
        """Return the result of ``prepare_batch`` for a raw batch."""
        return self.call("prepare_batch", self.transformed(raw_batch, position), self.state, self.ctx)

    def step(self, prepared_batch: Any) -> Any:
        """Train on a batch, and count the step as the loop does. With ``accumulate``, it is a tuple."""
        result = self.call("train_step", prepared_batch, self.state, self.ctx)
        self.parts.progress.advance()
        return result

    def steps(self, count: int) -> Iterator[Any]:
        """Train on the first batches of the data, as the loop would: the result of each step."""
        size = self.training.job.accumulate
        batches = self.raw_batches(count * size)
        for first in range(0, count * size, size):
            rows = range(
                first * self.ctx.job.batch_size, len(batches) * self.ctx.job.batch_size, self.ctx.job.batch_size
            )
            group = [self.prepared(*one) for one in zip(batches[first : first + size], rows, strict=False)]
            yield self.step(tuple(group) if size > 1 else group[0])

    def metrics(self, result: Any) -> dict[str, float]:
        """The metrics of a step, read as the host does.

        :raises InvalidStepResult: They are not scalars.
        """
        from hostcore.worker.metrics import read_metrics

        return read_metrics(result, f"train_step at step {self.ctx.run_state.step}")


def own_copy(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """The same rows in memory that can be written, and that no other code reads.

    A batch of the host may lie over a file that is mapped read-only, where writing ends the process.
    """
    import pyarrow as pa

    schema = batch.schema
    copied = bytearray(pa.RecordBatch.from_arrays([*batch.columns], schema=schema).serialize())
    return pa.ipc.read_record_batch(pa.py_buffer(copied), schema)


def on_stage(subject: Subject, scene: Callable[[Stage], T], **changes: Any) -> T:
    """Set the trainer up for its example job, look at it, and tear it down.

    :param scene: Takes the stage.
    :param changes: Keys of the job to set; None removes one.
    :return: What the scene returned.
    :raises NotApplicable: The author gave no example job.
    :raises HostcoreError: The job is invalid.
    """
    from hostcore.events.writer import RankLog
    from hostcore.worker.assembly import Assembly
    from hostcore.worker.attempt import live
    from hostcore.worker.feed.transform_call import Surroundings, bound
    from hostcore.worker.ranks.one import OneRank
    from hostcore.worker.ranks.rank_info import RankInfo
    from hostcore.worker.startup import prepare
    from hostcore.worker.stop import StopSwitch

    contract = _contract(subject, changes)
    with process_kept(), ExitStack() as open_ones:
        log = RankLog(Path(contract.events_path))
        open_ones.callback(log.close)
        parts = Assembly(contract, prepare(contract, RankInfo()), StopSwitch(), log, OneRank())

        def work(state: Any) -> T:
            training = parts.training(state, parts.checkpointer(state), open_ones)
            transform = bound(parts.prepared.hooks, parts.prepared.trainer, Surroundings.of(parts.ctx, "train"))
            return scene(Stage(parts=parts, training=training, state=state, transform=transform))

        return live(parts, work)


def _contract(subject: Subject, changes: Mapping[str, Any]) -> WorkerContract:
    folder, job = subject.folder(), small_job(subject, **{"callbacks": [], **changes})
    for split in {"dataset", "validation", "test"} & job.keys():
        job[split] = {**job[split], **_ALONE}
    planned = subject.shared(f"plan of {json.dumps(job, sort_keys=True, default=repr)}", lambda: _planned(subject, job))
    record = folder / "run.json"
    planned.record.write(record)
    return WorkerContract(
        trainer_plugin=planned.trainer,
        job_spec_path=str(record),
        checkpoints_dir=str(folder / "checkpoints"),
        samples_dir=str(folder / "samples"),
        events_path=str(folder / "events.jsonl"),
        run_dir=str(folder),
        attempts_dir=str(folder / "attempts"),
        inputs=planned.inputs,
    )


@attrs.frozen(kw_only=True, eq=False)
class _Planned:
    """A plan of a job, as far as a stage needs it: the same each time."""

    trainer: str
    record: RunRecord
    inputs: Mapping[str, str]


def _planned(subject: Subject, job: Mapping[str, Any]) -> _Planned:
    plan = make_plan(job, runs=subject.folder(), job_dir=subject.example.folder, discovered=installed())
    plan, _ = bring_here(plan, lambda _: None)
    record = RunRecord(job=plan.spec.to_json(), job_dir=str(plan.spec.job_dir), refs=plan.refs)
    return _Planned(trainer=plan.spec.trainer, record=record, inputs=plan.inputs)


def transform_of(component: "Component", ctx: "StepContext") -> "TransformCall | None":
    """``transform_batch`` of an instance of the trainer, as the host calls it; None if it has none."""
    from hostcore.plugins.hooks import WORKER_KINDS, Hooks
    from hostcore.worker.feed.transform_call import Surroundings, bound

    return bound(Hooks([component], kinds=WORKER_KINDS), component, Surroundings.of(ctx, "train"))


def models_of(state: Any) -> Mapping[str, Any]:
    """The parameters of the models in a trainer's state, by where they are: ``state.model.conv.weight``."""
    from hostcore.worker.modes import modules_in

    models = modules_in(state)
    paths = _paths_of(state, models)
    return {f"{paths[id(model)]}.{name}": one for model in models for name, one in model.named_parameters()}


def _paths_of(state: Any, models: Sequence[Any]) -> Mapping[int, str]:
    """Return the paths to the models of a trainer's state: ``state.model``, ``state['nets'][0]``, by their ids.

    :param models: As :func:`hostcore.worker.modes.modules_in` finds them.
    """
    wanted = {id(one) for one in models}
    found: dict[int, str] = {}
    for path, value in _reached(state):
        if id(value) in wanted:
            found.setdefault(id(value), path)
    return {id(one): found.get(id(one), f"model {number}") for number, one in enumerate(models)}


def _reached(state: Any) -> Iterator[tuple[str, Any]]:
    yield "state", state
    for path, value in members("state", state):
        yield path, value
        if isinstance(value, Mapping | list | tuple):
            yield from members(path, value)


def members(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of a value, by path: ``state.model``, ``state['nets']``.

    :param path: Path of the value itself.
    """
    if isinstance(value, Mapping | list | tuple):
        yield from ((f"{path}[{key!r}]", one) for key, one in parts(value).items())
        return
    slots = [cls.__dict__.get("__slots__", ()) for cls in type(value).__mro__]
    names = [name for one in slots for name in ([one] if isinstance(one, str) else one) if name != "__weakref__"]
    found = {**parts(value), **{name: getattr(value, name, None) for name in names}}
    yield from ((f"{path}.{name}", one) for name, one in found.items())


def losses_in(metrics: Mapping[str, T]) -> dict[str, T]:
    """The losses among some metrics; all of them if none is called so. Others may be times, which are never alike."""
    return {name: value for name, value in metrics.items() if "loss" in name} or dict(metrics)


def live_tensors() -> Sequence[Any]:
    """All tensors that Python holds."""
    import torch

    gc.collect()
    return [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]


def tensors_in(value: Any, depth: int = _DEPTH) -> list[Any]:
    """All tensors in a value, those of modules left out."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0 or isinstance(value, torch.nn.Module):
        return []
    return [tensor for member in parts(value).values() for tensor in tensors_in(member, depth - 1)]
