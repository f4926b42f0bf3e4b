"""Evaluating a checkpoint apart from any run: a worker that validates or tests, and no run directory."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.errors import CheckpointError
from hostcore.errors import Errors
from hostcore.job.data import settled_split, with_split_alone
from hostcore.job.differences import ABSENT, JobDifference, listed
from hostcore.job.document import Origins
from hostcore.job.json_values import to_plain
from hostcore.job.spec import JobSpec
from hostcore.plugins.errors import of_content
from hostcore.runs.contract import EITHER
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.supervisor.device_leases import hold_devices
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.workers.session import WorkerSession, session_without_run
from hostcore.supervisor.workers.spawn import LocalRanks
from hostcore_hookspecs.errors import HostcoreError, RunError


class OneOfSeveral(HostcoreError):
    """An evaluation was started as one of several ranks, each of which would do all of it."""

    code = "environment.ranks"


class EvaluationFailed(HostcoreError):
    """A component raised.

    :param error: What it raised, with its traceback.
    """

    code = "evaluation.failed"

    def __init__(self, error: RunError) -> None:
        super().__init__(f"{error.type}: {error.message}", hint=error.hint, plugin=error.plugin)
        self.error = error


class EvaluationDied(HostcoreError):
    """The worker died while it evaluated."""

    code = "worker.died"


@attrs.frozen(kw_only=True)
class Evaluation:
    """Result of an evaluation."""

    #: ``validation`` or ``test``.
    split: str
    #: The means over the data; None where the value is not finite.
    metrics: Mapping[str, float | None]
    #: The names whose value is not finite.
    nonfinite: list[str]
    #: Samples or tokens behind the means.
    weight: float
    #: Of the checkpoint.
    step: int
    #: Its folder; absolute.
    checkpoint: str
    #: Of the run that wrote it.
    run_id: str

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return attrs.asdict(self)


def evaluate(
    plan: RunPlan,
    asked: str | None,
    checkpoint: Path,
    *,
    relay: Callable[[bytes], object],
    tell: Callable[[str], object],
) -> Evaluation:
    """Have a worker load a checkpoint and evaluate it, on the first of the job's devices.

    :param asked: ``validation`` or ``test``; None: the test, or else the validation.
    :param checkpoint: A commit record; or a folder of checkpoints, of which the newest that verifies is taken.
    :param relay: Called with the worker's output.
    :param tell: Called with lines for people.
    :raises Errors: Everything that is wrong with the job, its data, or the checkpoint; also that it has no such data.
    :raises EvaluationFailed: When a component raises.
    :raises EvaluationDied: When the worker dies.
    :raises OneOfSeveral: When torchrun, or something like it, has started this process as one of several ranks.
    """
    if engine := Engine.of(os.environ):
        raise OneOfSeveral(
            f"an evaluation runs on one device, and this process is rank {engine.rank} of {engine.world_size}",
            hint="start `hostcore evaluate` by itself, without torchrun, or unset RANK and WORLD_SIZE",
        )
    record_of_run = _record_beside(checkpoint)
    if record_of_run is not None:
        _refuse_another_trainer(plan, record_of_run)
    split = settled_split(plan.spec, asked)
    spec = _alone(plan.spec, split)
    with (
        hold_devices(spec) as devices,
        session_without_run(
            plan,
            spec.to_json(),
            LocalRanks(1, devices),
            start_from=str(checkpoint),
            evaluate=asked or split or EITHER,
            devices=devices.names,
        ) as session,
    ):
        try:
            content = _evaluated(session, relay, spec.origins)
        except EvaluationFailed as failed:
            failed.hint = failed.hint or _other_hyperparams(plan, record_of_run)
            raise
    for skipped in content.pop("skipped"):
        tell(f"the checkpoint {skipped['path']} was passed over: {skipped['reason']}")
    return Evaluation(**content)


def _alone(spec: JobSpec, split: str | None) -> JobSpec:
    """The job with what an evaluation needs: one device, one split, and nothing of the steps.

    :param split: None: the worker chooses it.
    """
    return attrs.evolve(
        with_split_alone(spec, split) if split else spec,
        validate_every=0,
        device=spec.requested_devices[0],
        devices=None,
        accumulate=None,
        global_batch_size=None,
        samples=(),
        sample_every=0,
        resume_from_checkpoint="auto",
        # Its one device is the first of its devices.
        origins={**spec.origins, **({"device": origin} if (origin := spec.origins.get("devices")) else {})},
    )


def _record_beside(checkpoint: Path) -> RunRecord | None:
    """The record of the run in whose directory a checkpoint lies; None if it lies elsewhere."""
    folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
    try:
        return RunRecord.read(RunDirectory(folder.parent).record)
    except FileNotFoundError:
        return None


def _refuse_another_trainer(plan: RunPlan, record: RunRecord) -> None:
    of_run = next((one for one in record.plugins if one["kind"] == "trainer"), None)
    (trainer,) = (one.ref for one in plan.selected if one.ref.kind == "trainer")
    if of_run is None or (of_run["name"], of_run["distribution"]) == (trainer.name, trainer.dist):
        return
    raise CheckpointError(
        f"the checkpoint is one of the trainer {of_run['name']!r}, and the job has {trainer.name!r}",
        code="checkpoint.other_trainer",
        pointer="/trainer",
        hint=f"evaluate it with the job of its run, {record.job.get('run_id')!r}",
    )


def _other_hyperparams(plan: RunPlan, record: RunRecord | None) -> str | None:
    """Hint for a trainer that failed to load a checkpoint: its run had other hyperparameters; None if it had not."""
    if record is None:
        return None
    before, now = record.job.get("hyperparams", {}), to_plain(plan.spec.hyperparams)
    different = [
        JobDifference(pointer=f"/hyperparams/{key}", before=before.get(key, ABSENT), after=now.get(key, ABSENT))
        for key in {**before, **now}
        if before.get(key, ABSENT) != now.get(key, ABSENT)
    ]
    return f"the run of the checkpoint had other ones: {listed(different)}" if different else None


def _evaluated(session: WorkerSession, relay: Callable[[bytes], object], origins: Origins) -> dict[str, Any]:
    """Return the worker's result. Its output meanwhile is passed on."""
    (member,) = session.members
    with member.output.open("rb") as output:
        try:
            while member.exit is None:
                for _, kind, content in session.listen():
                    if kind == "invalid":
                        raise Errors(of_content(content, origins))
                    if kind == "failed":
                        raise EvaluationFailed(RunError(**content))
                    if kind == "evaluated":
                        return dict(content)
                    session.send("go", {})
                relay(output.read())
        finally:
            relay(output.read())
    hint = "the kernel killed it for lack of memory: give it more, or use a smaller batch_size"
    raise EvaluationDied(
        f"the worker {member.exit} while it evaluated", hint=hint if member.exit.out_of_memory else None
    )
