"""That the real host trains on every row of the data, once an epoch."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.data_source.stage import example_settings, first_unequal, rows_of, shown, whole
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.rehearsal import rehearse
from hostcore_conformance.stage import on_stage
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import StepResult

_LARGEST_BATCH: Final = 64
#: The rows of all steps since it was cleared, as text. The runs of the kit are in its own process.
_seen: Final[list[str]] = []


@check(
    "data_source.trains",
    requires=("data_source.offsets", "data_source.independent_readers"),
    variants=("in_order", "shuffled", "resumed"),
)
def trains(subject: Subject, variant: str) -> None:
    """A run of the host is given every row of the data once.

    An epoch is run by the real host, with a trainer that notes the rows it is given. In order, they must be those of
    the shards, one after the other; shuffled, the same rows in another order; resumed, a shuffled run is ended after
    half of its steps and resumed in a second attempt, and the rows of both together are those of a run in one piece.

    If this fails while the other checks pass, something is different inside a run: the source reads the data in
    another way in a second thread, while several shards are open, or when it is opened a second time.
    """
    everything = whole(subject).all_rows
    size = _batch_size(len(everything))
    job = {
        "trainer": f"{__name__}:RowCollector",
        "dataset": {
            **example_settings(subject),
            "source": subject.qualified_name,
            "batch_size": size,
            "shuffle": variant != "in_order",
        },
        "device": "cpu",
    }
    found = _rows_of_a_run(subject, job, runs=subject.folder())
    if variant == "in_order":
        _require_equal(everything, found, "the rows of the shards, in order")
        return
    _require_each_once(everything, found)
    if variant == "resumed":
        runs, half = subject.folder(), len(everything) // size // 2
        parts = _rows_of_a_run(subject, job, runs=runs, max_steps=half) if half else []
        parts += _rows_of_a_run(subject, job, runs=runs)
        _require_equal(found, parts, "the rows of two attempts to be those of one")


def _batch_size(rows: int) -> int:
    """The largest one of which an epoch has no tail."""
    return next(size for size in range(min(_LARGEST_BATCH, max(rows // 2, 1)), 0, -1) if rows % size == 0)


def _rows_of_a_run(subject: Subject, job: dict[str, Any], *, runs: Path, max_steps: int | None = None) -> list[str]:
    _seen.clear()
    run = rehearse(on_stage(subject, job), runs=runs, max_steps=max_steps, epochs=1, metric_every=0)
    rows = list(_seen)
    _seen.clear()
    run.require_success("a run over the example's data")
    return rows


def _require_equal(expected: list[str], found: list[str], what: str) -> None:
    if found != expected:
        raise ConformanceError(
            expected=what,
            got=first_unequal(expected, found),
            fix="See that read_shard depends on nothing but its arguments.",
        )


def _require_each_once(expected: list[str], found: list[str]) -> None:
    wanted, got = Counter(expected), Counter(found)
    if wanted == got:
        return
    lost, extra = list((wanted - got).elements()), list((got - wanted).elements())
    raise ConformanceError(
        expected=f"each of {len(expected)} rows once in a shuffled epoch",
        got=f"{len(lost)} rows never"
        + (f", such as ({shown(lost[0])})" if lost else "")
        + f", {len(extra)} too often"
        + (f", such as ({shown(extra[0])})" if extra else ""),
        fix="See that read_shard depends on nothing but its arguments: shard, columns and offset.",
    )


class RowCollector:
    """A trainer that only notes the rows that it is given. Named by import path in the jobs."""

    def configure(self) -> dict[str, int]:
        """Return the number of rows seen."""
        return {"rows": 0}

    def prepare_batch(self, raw_batch: Any) -> Any:
        """The batch as it is."""
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, int]) -> StepResult:
        """Note the rows."""
        _seen.extend(rows_of(prepared_batch))
        state["rows"] += prepared_batch.num_rows
        return StepResult(metrics={"loss": 0.0})
