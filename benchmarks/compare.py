"""What got slower between two runs of one benchmark, by more than its noise.

    python benchmarks/feed.py --json old.json     # at one commit
    python benchmarks/feed.py --json new.json     # at another
    python benchmarks/compare.py old.json new.json

For each row: the ratio of the medians, NEW to OLD, and the noise of both. The noise of a row is 1.5 times the
interquartile range of its rounds, relative to their median. A row is ``slower`` or ``quicker`` where the ratio leaves
1 by more than both noises together; less of what is better counts as slower, whatever the unit. Of rows that do not
differ, about 2 in 100 are called slower if there are 3 rounds, and fewer than 1 from 5 rounds on. A row with a single
round on a side has no noise that is known, and is not judged. A row that is a difference may be below 0, and then has
no ratio; it is judged by how far its medians are apart, like every row.

Two runs one after the other know the noise within each alone: a machine that became busy in between looks like a
regression. Measure OLD again before you believe one.

Exit status: 0; 1 if a row is slower; 2 if the files cannot be compared.
"""

import argparse
import statistics
import sys
from pathlib import Path

import attrs
from results import BadResult, Result, Row, read

#: How many interquartile ranges of its rounds are a row's noise.
RANGES = 1.5


@attrs.frozen(kw_only=True)
class Comparison:
    """One row of both runs."""

    name: str
    unit: str
    old: float
    new: float
    #: In the unit; None if there is a single round.
    old_noise: float | None
    new_noise: float | None
    less_is_better: bool

    @property
    def verdict(self) -> str:
        if self.old_noise is None or self.new_noise is None:
            return "not judged: one round"
        if abs(self.new - self.old) <= self.old_noise + self.new_noise:
            return "within its noise"
        return "slower" if (self.new > self.old) == self.less_is_better else "quicker"

    def __str__(self) -> str:
        ratio = f"{self.new / self.old:.3f}" if self.old > 0 <= self.new else "-"
        noises = " | ".join(
            "unknown" if noise is None else _percent(noise, median)
            for median, noise in ((self.old, self.old_noise), (self.new, self.new_noise))
        )
        return f"| {self.name} | {self.unit} | {self.old:.4g} | {self.new:.4g} | {ratio} | {noises} | {self.verdict} |"


def _percent(noise: float, median: float) -> str:
    return f"± {noise / abs(median):.1%}" if median else f"± {noise:.4g}"


def noise(values: list[float]) -> float | None:
    """Of a row, in its unit."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return RANGES * (high - low)


def compare(old: Result, new: Result) -> list[Comparison]:
    """The rows that both have.

    :raises BadResult: They are of different benchmarks or settings, or a row has another unit.
    """
    if old.benchmark != new.benchmark:
        raise BadResult(f"different benchmarks: {old.benchmark} and {new.benchmark}")
    for key in sorted(old.settings.keys() | new.settings.keys()):
        if old.settings.get(key) != new.settings.get(key):
            raise BadResult(f"different settings: {key} is {old.settings.get(key)} and {new.settings.get(key)}")
    both = [(name, row, new.rows[name]) for name, row in measured(old).items() if name in measured(new)]
    return [_compare(name, row, other) for name, row, other in both]


def measured(result: Result) -> dict[str, Row]:
    """The rows that have values."""
    return {name: row for name, row in result.rows.items() if row.values is not None}


def _compare(name: str, old: Row, new: Row) -> Comparison:
    assert old.values is not None and new.values is not None
    if (old.unit, old.less_is_better) != (new.unit, new.less_is_better):
        raise BadResult(f"different units of {name!r}: {_unit(old)} and {_unit(new)}")
    return Comparison(
        name=name,
        unit=old.unit,
        old=statistics.median(old.values),
        new=statistics.median(new.values),
        old_noise=noise(old.values),
        new_noise=noise(new.values),
        less_is_better=old.less_is_better,
    )


def _unit(row: Row) -> str:
    return f"{row.unit} ({'less' if row.less_is_better else 'more'} is better)"


def report(old: Result, new: Result, compared: list[Comparison]) -> str:
    lines = [f"{old.benchmark}: " + ", ".join(f"{key} {value}" for key, value in old.settings.items())]
    for side, result in (("OLD", old), ("NEW", new)):
        lines.append(f"{side}: " + ", ".join(f"{key} {value}" for key, value in result.machine.items()))
    if others := [key for key in ("cpu", "cores", "python", "torch") if old.machine.get(key) != new.machine.get(key)]:
        lines.append(f"The machines differ in {', '.join(others)}: a ratio may be theirs.")
    if compared:
        lines += ["", "| row | unit | OLD | NEW | NEW to OLD | noise of OLD | noise of NEW | |", "|---" * 8 + "|"]
        lines += map(str, compared)
    for side, here, there in (("OLD", old, new), ("NEW", new, old)):
        if alone := [name for name in measured(here) if name not in measured(there)]:
            lines.append(f"\nIn {side} only: {', '.join(alone)}")
    return "\n".join(lines)


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("old", metavar="OLD", type=Path)
    ask.add_argument("new", metavar="NEW", type=Path)
    options = ask.parse_args()
    try:
        old, new = read(options.old), read(options.new)
        compared = compare(old, new)
    except BadResult as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    print(report(old, new, compared))
    slower = [one.name for one in compared if one.verdict == "slower"]
    if slower:
        print(f"\nSlower than its noise: {', '.join(slower)}")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
