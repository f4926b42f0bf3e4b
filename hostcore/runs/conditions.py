"""Conditions that the attempts of a run trained under: versions, threads, and keys of the job that may change."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from hostcore.runs.record import RunRecord
from hostcore.runs.retrained import Comparison
from hostcore.runs.used import changed_plugins, recorded_use

#: The keys of a job that a resume may change, and that change what steps and validations give.
_KEYS: Final = (
    *("dataset", "validation", "test", "max_steps", "epochs", "validate_every", "accumulate", "global_batch_size"),
    *("deterministic", "weights", "inputs", "samples", "sample_every"),
)


def with_conditions(
    before: Sequence[Mapping[str, Any]], *, attempt: int, environment: Mapping[str, Any], job: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the conditions of all attempts, each entry from its attempt on, with those of one more.

    :param before: Those of earlier attempts, oldest first.
    :param environment: Versions and threads.
    :param job: As plain JSON. Digests of its values are kept.
    """
    digests = {key: hashlib.sha256(orjson.dumps(job.get(key))).hexdigest()[:12] for key in _KEYS}
    earlier = [one for one in before if one["attempt"] < attempt]
    new = {"attempt": attempt, "environment": dict(environment), "job": digests}
    same = earlier and {**earlier[-1], "attempt": attempt} == new
    return earlier if same else [*earlier, new]


def known_causes(
    found: Comparison, record: RunRecord, devices: Mapping[int, Sequence[str]], *, file: Path
) -> list[str]:
    """Return the causes that an attempt may measure other values than the earlier one; empty: there should be none.

    :param devices: Of each attempt, by rank.
    :param file: The record.
    """
    before, now = (_in_force(record.conditions, attempt) for attempt in (found.before, found.attempt))
    versions, other = before.get("environment", {}), now.get("environment", {})
    causes = [
        f"{name} {versions[name]} -> {other[name]}"
        for name in versions
        if other.get(name) is not None is not versions[name] and versions[name] != other[name]
    ]
    kinds = [[name.partition(":")[0] for name in devices.get(at, ())] for at in (found.before, found.attempt)]
    if all(kinds) and kinds[0] != kinds[1]:
        causes.append(f"devices {_counted(kinds[0])} -> {_counted(kinds[1])}")
    old, new = before.get("job", {}), now.get("job", {})
    causes += [f"the job's {key!r}" for key in old if key in new and old[key] != new[key]]
    causes += changed_plugins(recorded_use(record, file), found.before, found.attempt)
    if set(kinds[1]) - {"cpu"} and not record.job.get("deterministic"):
        causes.append('kernels that are not deterministic, without `"deterministic": true`')
    return causes


def _in_force(conditions: Any, attempt: int) -> Mapping[str, Any]:
    """Return the entry of an attempt; empty in a record that has none."""
    try:
        return next((one for one in reversed(conditions) if one["attempt"] <= attempt), {})
    except (TypeError, KeyError, AttributeError):  # a job may write what it likes into its record
        return {}


def _counted(kinds: Sequence[str]) -> str:
    return " + ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
