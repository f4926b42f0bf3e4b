"""Runs side by side: in what they differ, and what came of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from hostcore.job.pointers import escaped
from hostcore.runs.record import RunRecord

A = TypeVar("A")

#: Stands for a value that a run does not have.
ABSENT: Final = attrs.NOTHING
#: Of the job: every run has its own.
_OWN: Final = frozenset({"run_id"})


@attrs.frozen(kw_only=True)
class Difference:
    """One place in which runs differ."""

    #: In the job, a JSON pointer; elsewhere a name.
    place: str
    #: Of each run; :data:`ABSENT` for none.
    values: Sequence[Any]

    def as_dict(self, key: str) -> dict[str, Any]:
        """The difference of two runs as plain JSON; a side without a value has no key.

        :param key: What the place is called.
        """
        sides = zip("ab", self.values, strict=True)
        return {key: self.place, **{side: value for side, value in sides if value is not ABSENT}}


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


def differences(*runs: RunRecord) -> dict[str, list[Difference]]:
    """Return everything in which runs differ: ``job``, ``plugins``, ``environment``."""
    return {
        "job": job_differences(*runs),
        "plugins": plugin_differences(*runs),
        "environment": environment_differences(*runs),
    }


def job_differences(*runs: RunRecord) -> list[Difference]:
    """Return the innermost places in which jobs differ, whatever they mean for a resume."""
    jobs = [{key: value for key, value in run.job_with_data.items() if key not in _OWN} for run in runs]
    return list(_leaves("", jobs))


def environment_differences(*runs: RunRecord) -> list[Difference]:
    """Return what differs in what they ran on: the versions of hostcore, Python and the libraries, the machine."""
    return [attrs.evolve(one, place=one.place[1:]) for one in _leaves("", [dict(run.environment) for run in runs])]


def plugin_differences(*runs: RunRecord) -> list[Difference]:
    """Return the plugins that not all runs had, or that were of another distribution, version or content.

    Places are ``kind name``, as in ``callback ema``.
    """
    used = [_by_use(run.plugins) for run in runs]
    uses = [(use, [one.get(use, ABSENT) for one in used]) for use in {use: None for one in used for use in one}]
    return [Difference(place=use, values=values) for use, values in uses if any(one != values[0] for one in values)]


def _by_use(plugins: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    told = ("distribution", "version", "sha256")
    return {f"{one['kind']} {one['name']}": {key: one.get(key) for key in told} for one in plugins}


def metric_pairs(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> list[MetricPair]:
    """Every metric that either run measured, by name."""
    return [MetricPair(name=name, a=a.get(name), b=b.get(name)) for name in sorted({*a, *b})]


def _leaves(pointer: str, values: Sequence[Any]) -> Iterator[Difference]:
    first = values[0]
    if all(one == first and type(one) is type(first) for one in values):
        return
    members: Iterable[tuple[str, Sequence[Any]]]
    if all(isinstance(one, Mapping) for one in values):
        keys = {key: None for one in values for key in one}
        members = [(key, [one.get(key, ABSENT) for one in values]) for key in keys]
    elif all(isinstance(one, list) and len(one) == len(first) for one in values):
        members = [(str(index), column) for index, column in enumerate(zip(*values, strict=True))]
    else:  # of lists of different lengths it is unknown which item became which
        yield Difference(place=pointer, values=values)
        return
    for key, column in members:
        yield from _leaves(f"{pointer}/{escaped(key)}", column)
