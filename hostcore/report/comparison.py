"""Two runs side by side: in what they differ, and what came of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.job.pointers import escaped
from hostcore.runs.record import RunRecord

#: Stands for a value that one side does not have.
ABSENT: Final = attrs.NOTHING
#: Of the job: every run has its own.
_OWN: Final = frozenset({"run_id"})


@attrs.frozen(kw_only=True)
class Difference:
    """One place in which two runs differ."""

    #: In the job, a JSON pointer; elsewhere a name.
    place: str
    #: The values; :data:`ABSENT` for none.
    a: Any
    b: Any

    def as_dict(self, key: str) -> dict[str, Any]:
        """The difference as plain JSON; a side without a value has no key.

        :param key: What the place is called.
        """
        sides = {"a": self.a, "b": self.b}
        return {key: self.place, **{side: value for side, value in sides.items() if value is not ABSENT}}


@attrs.frozen(kw_only=True)
class MetricPair:
    """A metric of both runs, as it was measured last."""

    name: str
    #: None where it was not finite, or never measured.
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """``b - a``; None unless both are finite."""
        return None if self.a is None or self.b is None else self.b - self.a

    def as_dict(self) -> dict[str, Any]:
        """The pair as plain JSON."""
        return {"name": self.name, "a": self.a, "b": self.b, "difference": self.difference}


def job_differences(a: RunRecord, b: RunRecord) -> list[Difference]:
    """The innermost places in which two jobs differ, whatever they mean for a resume."""
    one, other = ({key: value for key, value in run.job_with_data.items() if key not in _OWN} for run in (a, b))
    return list(_leaves("", one, other))


def environment_differences(a: RunRecord, b: RunRecord) -> list[Difference]:
    """What differs in what they ran on: the versions of hostcore, Python and the libraries, the machine."""
    return [attrs.evolve(one, place=one.place[1:]) for one in _leaves("", dict(a.environment), dict(b.environment))]


def plugin_differences(a: RunRecord, b: RunRecord) -> list[Difference]:
    """The plugins that only one run had, or that were of another distribution, version or content.

    Places are ``kind name``, as in ``callback ema``.
    """
    one, other = _by_use(a.plugins), _by_use(b.plugins)
    uses = [(use, one.get(use, ABSENT), other.get(use, ABSENT)) for use in {**one, **other}]
    return [Difference(place=use, a=left, b=right) for use, left, right in uses if left != right]


def _by_use(plugins: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    told = ("distribution", "version", "sha256")
    return {f"{one['kind']} {one['name']}": {key: one.get(key) for key in told} for one in plugins}


def metric_pairs(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> list[MetricPair]:
    """Every metric that either run measured, by name."""
    return [MetricPair(name=name, a=a.get(name), b=b.get(name)) for name in sorted({*a, *b})]


def _leaves(pointer: str, a: Any, b: Any) -> Iterator[Difference]:
    if a == b and type(a) is type(b):
        return
    members: Iterable[tuple[str, Any, Any]]
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        members = [(key, a.get(key, ABSENT), b.get(key, ABSENT)) for key in {**a, **b}]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        members = [(str(index), *pair) for index, pair in enumerate(zip(a, b, strict=True))]
    else:  # of lists of different lengths it is unknown which item became which
        yield Difference(place=pointer, a=a, b=b)
        return
    for key, left, right in members:
        yield from _leaves(f"{pointer}/{escaped(key)}", left, right)
