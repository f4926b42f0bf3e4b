"""In what two jobs differ such that one cannot continue the other."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import attrs

from hostcore.job.json_values import to_plain
from hostcore.job.names import BUILTIN
from hostcore.job.pointers import escaped
from hostcore.job.sections import ComponentUse
from hostcore.job.spec import JobSpec
from hostcore.job.wording import found
from hostcore.secrets.reference import is_reference

#: What a key is that a job does not have.
ABSENT: Final = attrs.NOTHING

_MOST_SHOWN = 5


@attrs.frozen(kw_only=True)
class JobDifference:
    """One place in which two jobs differ."""

    pointer: str
    #: The value in either job; :data:`ABSENT` for none.
    before: Any
    after: Any

    def __str__(self) -> str:
        """``/dataset/batch_size: 32 -> 64``."""
        return f"{self.pointer}: {_shown(self.before)} -> {_shown(self.after)}"


def _identity(spec: JobSpec) -> dict[str, Any]:
    """The values that a job must share with another that continues it, by key."""
    dataset = spec.dataset
    if dataset is not None:
        # How the data is carried does not change what a step sees, as long as the global batch is the same.
        source = dataset.source.removeprefix(BUILTIN)
        dataset = attrs.evolve(dataset, source=source, batch_size=1, readahead=0, workers=0)
    return {
        "trainer": spec.trainer,
        "hyperparams": spec.hyperparams,
        "dataset": dataset,
        "mock_batches": spec.mock_batches,
        "seed": spec.seed,
        "precision": spec.precision,
        "environment": spec.environment,
        "callbacks": [attrs.evolve(callback, use=callback.use.removeprefix(BUILTIN)) for callback in spec.callbacks],
        "global_batch_size": spec.rows_per_step,
    }


def job_differences(before: JobSpec, after: JobSpec) -> list[JobDifference]:
    """The differences of two jobs, value by value; empty if one can continue the other."""
    one, other = _identity(before), _identity(after)
    differences: list[JobDifference] = []
    for key in (key for key in one if one[key] != other[key]):
        if key != "global_batch_size":
            differences += _leaves(f"/{key}", _plain(one[key]), _plain(other[key]))
        elif (before.dataset is None) == (after.dataset is None):  # else it follows from that
            differences += _of_global_batch(before, after)
    return differences


def listed(differences: Sequence[JobDifference]) -> str:
    """The first few of them in a line."""
    shown = ", ".join(str(difference) for difference in differences[:_MOST_SHOWN])
    more = len(differences) - _MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _of_global_batch(before: JobSpec, after: JobSpec) -> list[JobDifference]:
    sizes = (before.rows_per_step, after.rows_per_step)
    if before.global_batch_size or after.global_batch_size:
        return [JobDifference(pointer="/global_batch_size", before=sizes[0], after=sizes[1])]
    factors = zip(_factors(before), _factors(after), strict=True)
    return [JobDifference(pointer=at, before=old, after=new) for (at, m, old), (_, n, new) in factors if m != n]


def _factors(spec: JobSpec) -> list[tuple[str, int, Any]]:
    """The factors of a global batch that no job gives: pointer, factor, and the value behind it."""
    return [
        ("/dataset/batch_size", spec.batch_size, spec.batch_size),
        ("/devices", spec.ranks, list(spec.requested_devices)),
        ("/accumulate", spec.micro_batches, spec.micro_batches),
    ]


def _plain(value: Any) -> Any:
    """As plain JSON; components always as objects, so that two of them can be compared key by key."""
    if isinstance(value, list) and all(isinstance(item, ComponentUse) for item in value):
        return [{"use": item.use, **to_plain(item.settings)} for item in value]
    return ABSENT if value is None else to_plain(value)


def _leaves(pointer: str, before: Any, after: Any) -> list[JobDifference]:
    """The innermost places in which two values differ."""
    if before == after:
        return []
    if is_reference(before) or is_reference(after):
        return [JobDifference(pointer=pointer, before=before, after=after)]
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        members = [(key, before.get(key, ABSENT), after.get(key, ABSENT)) for key in {**before, **after}]
    elif isinstance(before, list) and isinstance(after, list):
        pairs = enumerate(zip_longest(before, after, fillvalue=ABSENT))
        members = [(str(index), old, new) for index, (old, new) in pairs]
    else:
        return [JobDifference(pointer=pointer, before=before, after=after)]
    return [leaf for key, old, new in members for leaf in _leaves(f"{pointer}/{escaped(key)}", old, new)]


def _shown(value: Any) -> str:
    """A value in a few words; a component by its name."""
    if value is ABSENT:
        return "not given"
    return found(value["use"] if isinstance(value, Mapping) and "use" in value else value)
