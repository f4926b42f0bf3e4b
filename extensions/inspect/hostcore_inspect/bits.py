"""The first place at which two runs are not the same, bit for bit: by their logs and their checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.find import committed
from hostcore.checkpoints.record import CommitRecord
from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.recorded import RecordedStep, recorded_steps
from hostcore.runs.retrained import is_compared
from hostcore.verification.checkpoint_checks import host_state
from hostcore_hookspecs.errors import HostcoreError
from hostcore_inspect.comparison import differences


@attrs.frozen(kw_only=True)
class TensorDifference:
    """A tensor of the trainer's state that differs."""

    #: Its file in the checkpoint, and its name there.
    name: str
    #: The greatest distance of two elements in units in the last place; None where they are of another kind or shape.
    max_ulp: int | None


@attrs.frozen(kw_only=True)
class BitComparison:
    """The comparison of two runs."""

    #: Whether nothing that both have differs.
    equal: bool
    #: Recorded steps that both have, and checkpoints of the same step.
    compared_steps: int
    compared_checkpoints: int
    #: The first step whose metrics differ; or the step of the first checkpoint that differs, which is behind it.
    first_different_step: int | None
    #: The first step before it that one of them has not recorded, behind all that are equal; None if there is none.
    first_unrecorded_step: int | None
    #: The first metric that differs there, with both values.
    metric: tuple[str, float | None, float | None] | None
    #: The newest checkpoint before that both have alike; None if there is none.
    last_equal_checkpoint: int | None
    first_different_checkpoint: int | None
    #: ``rows``, ``learning rate``, ``random state``, ``job``, ``environment`` or ``unknown``; None if they are equal.
    cause: str | None
    #: Names of job keys, versions or plugins behind the cause.
    details: Sequence[str]
    #: Of the first checkpoint that differs, the greatest difference first.
    tensors: Sequence[TensorDifference]


def compare_bits(one: RunDirectory, other: RunDirectory) -> BitComparison:
    """Compare two runs from their first step on.

    Checkpoints are compared by the digests that they were committed with; of the first that differs the tensors are
    read.

    :raises HostcoreError: They have neither a recorded step nor a checkpoint of the same step.
    """
    recorded = [recorded_steps(one.events), recorded_steps(other.events)]
    steps = sorted(recorded[0].keys() & recorded[1].keys())
    pairs = _pairs(one, other)
    if not steps and not pairs:
        raise HostcoreError(
            f"the runs {one.run_id!r} and {other.run_id!r} have no recorded step and no checkpoint in common",
            hint="metric_every and checkpoint_every decide which steps have some",
        )
    metric_step, metric = _first_metric(steps, *recorded)
    different = next((pair for pair in pairs if _state_of(pair[0]) != _state_of(pair[1])), None)
    alike = [pair[0].step for pair in pairs if different is None or pair[0].step < different[0].step]
    found = [step for step in (metric_step, different[0].step if different else None) if step is not None]
    equal = not found
    cause, details = (None, []) if equal else _cause(one, other, pairs, metric)
    return BitComparison(
        equal=equal,
        compared_steps=len(steps),
        compared_checkpoints=len(pairs),
        first_different_step=min(found, default=None),
        first_unrecorded_step=_first_unrecorded(min(found, default=0), steps, alike),
        metric=metric if metric_step == min(found, default=None) else None,
        last_equal_checkpoint=max(alike, default=None),
        first_different_checkpoint=different[0].step if different else None,
        cause=cause,
        details=details,
        tensors=_tensors(one, other, *different) if different else [],
    )


def _pairs(one: RunDirectory, other: RunDirectory) -> list[tuple[CommitRecord, CommitRecord]]:
    """Return the checkpoints of the same steps, oldest first."""
    theirs = {record.step: record for record in committed(other.checkpoints)}
    return [(record, theirs[record.step]) for record in committed(one.checkpoints) if record.step in theirs]


def _first_metric(
    steps: Sequence[int], one: Mapping[int, RecordedStep], other: Mapping[int, RecordedStep]
) -> tuple[int | None, tuple[str, float | None, float | None] | None]:
    for step in steps:
        theirs = other[step].metrics
        for name, value in one[step].metrics.items():
            if name in theirs and is_compared(name) and repr(value) != repr(theirs[name]):
                return step, (name, value, theirs[name])
    return None, None


def _first_unrecorded(different: int, recorded: Sequence[int], alike: Sequence[int]) -> int | None:
    """Return the first step behind the last equal checkpoint that is not recorded, and before the different one."""
    known = {*recorded, *alike}
    return next((step for step in range(max(alike, default=0) + 1, different) if step not in known), None)


def _state_of(record: CommitRecord) -> dict[str, str]:
    """Return the digests of the trainer's files. Those of the host name the run; those of ranks are random states."""
    return {file.path: file.sha256 for file in record.files if not file.path.startswith(("host.", "rank-"))}


def _cause(
    one: RunDirectory,
    other: RunDirectory,
    pairs: Sequence[tuple[CommitRecord, CommitRecord]],
    metric: tuple[str, float | None, float | None] | None,
) -> tuple[str, list[str]]:
    """Return the most likely cause of a difference: what differed first in the way from data to weights."""
    records = [RunRecord.read(each.record) for each in (one, other)]
    found = differences(*records)
    job = [each.place for each in found["job"] if each.place not in ("/run_id", "/labels", "/annotations")]
    for pair in pairs:
        hosts = [
            host_state(run.checkpoints / record.folder_name) for run, record in zip((one, other), pair, strict=True)
        ]
        if any(host.get("data") != hosts[0].get("data") for host in hosts) or (
            hosts[0].get("cursor") != hosts[1].get("cursor")
        ):
            return "rows", [place for place in job if place.startswith(("/dataset", "/seed", "/accumulate"))]
    if job:
        return "job", job
    if metric is not None and "lr" in metric[0].rpartition("/")[2].split("_"):
        return "learning rate", [metric[0]]
    others = [each.place for kind in ("plugins", "environment") for each in found[kind]]
    if others:
        return "environment", others
    alike = [pair for pair in pairs if _state_of(pair[0]) == _state_of(pair[1])]
    if any(_random_of(pair[0]) != _random_of(pair[1]) for pair in alike):
        return "random state", []
    return "unknown", []


def _random_of(record: CommitRecord) -> dict[str, str]:
    """Return the digests of the random states of the ranks."""
    return {file.path: file.sha256 for file in record.files if file.path.startswith("rank-")}


def _tensors(
    one: RunDirectory, other: RunDirectory, record: CommitRecord, their_record: CommitRecord
) -> list[TensorDifference]:
    folders = one.checkpoints / record.folder_name, other.checkpoints / their_record.folder_name
    states = _state_of(record), _state_of(their_record)
    changed = sorted(name for name in states[0].keys() | states[1].keys() if states[0].get(name) != states[1].get(name))
    found = [each for name in changed if name.endswith(".safetensors") for each in _in_file(*folders, name)]
    return sorted(found, key=lambda each: (each.max_ulp is not None, -(each.max_ulp or 0), each.name))


def _in_file(one: Path, other: Path, name: str) -> Iterator[TensorDifference]:
    import torch
    from safetensors.torch import load_file

    mine, theirs = (load_file(folder / name) if (folder / name).is_file() else {} for folder in (one, other))
    for key in sorted(mine.keys() | theirs.keys()):
        first, second = mine.get(key), theirs.get(key)
        if first is None or second is None or (first.shape, first.dtype) != (second.shape, second.dtype):
            yield TensorDifference(name=key, max_ulp=None)
        elif first.numel() and not torch.equal(first.flatten().view(torch.uint8), second.flatten().view(torch.uint8)):
            yield TensorDifference(name=key, max_ulp=_ulps(first, second))


def _ulps(one: Any, other: Any) -> int:
    """Return the greatest distance of two elements, in representable numbers between them.

    :param one: A tensor of any shape and kind; of integers the distance is that of their values.
    :param other: A tensor like it.
    """
    import torch

    if one.dtype.is_complex:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.dtype.is_floating_point:
        return int((one.to(torch.int64) - other.to(torch.int64)).abs().max())
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    lowest = torch.iinfo(integer).min
    # Signed zeros are neighbours of themselves; float64 is halved, so that distances fit into 64 bits.
    halves = 2 if integer is torch.int64 else 1
    places = []
    for each in (one, other):
        bits = each.flatten().view(integer).to(torch.int64)
        places.append(torch.where(bits < 0, lowest - bits, bits).div(halves, rounding_mode="floor"))
    return int((places[0] - places[1]).abs().max()) * halves
