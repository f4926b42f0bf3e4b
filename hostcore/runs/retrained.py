"""Steps that an attempt trains again after a resume: their metrics are compared, bit for bit, with the earlier ones.

After a kill, the log has metrics of steps behind the checkpoint, which the next attempt trains again; after a stop, it
has those that ``prove_resume`` asks for. A difference
means that the training depends on something that the checkpoint does not hold, or that the conditions of the attempts,
which the record of the run has, are not the same: versions, threads, and keys of the job that may change.
"""

import hashlib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.runs.record import RunRecord
from hostcore.runs.used import changed_plugins, recorded_use
from hostcore_builtin_plugins.control_characters import visible

#: The code of the event about a difference, and of that about one that has a known cause.
DIFFERS: Final = "resume.differs"
EXPECTED: Final = "resume.expected_difference"
#: Names of metrics with one of these words measure the machine, not the training.
TIMED: Final = frozenset(
    [
        *("s", "ms", "us", "ns", "sec", "secs", "second", "seconds", "minute", "minutes", "hour", "hours", "time"),
        *("times", "timestamp", "duration", "elapsed", "eta", "clock", "wall", "wait", "latency", "speed"),
        *("throughput", "fps", "flops", "tflops", "mfu", "bandwidth", "memory", "mem", "ram", "vram", "rss", "gpu"),
        *("cpu", "disk", "utilization", "util", "power", "watts", "bytes", "kb", "mb", "gb", "kib", "mib", "gib"),
        *("host", "pid"),
    ]
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_MEASURED: Final = frozenset({"metrics", "validation", "test"})
#: Events behind which another history begins.
_BREAKS: Final = frozenset({"batch_split", "trainer_restored"})
#: The keys of a job that a resume may change, and that change what steps and validations give.
_KEYS: Final = (
    *("dataset", "validation", "test", "max_steps", "epochs", "validate_every", "accumulate", "global_batch_size"),
    *("deterministic", "weights", "inputs", "samples", "sample_every"),
)
#: So many values are kept of the steps behind the newest checkpoint, the first of them.
_MOST_VALUES: Final = 100_000


@lru_cache(maxsize=4096)
def is_compared(metric: str) -> bool:
    """Return whether a metric depends on the training alone, as far as its name shows."""
    return TIMED.isdisjoint(word.lower() for word in _WORD.findall(metric))


@attrs.define(kw_only=True)
class Comparison:
    """The measurements that one attempt made again."""

    attempt: int
    #: The attempt that made them first; of a difference, the one that it differs from.
    before: int
    #: Of the first and of the last.
    first_step: int
    last_step: int
    #: Measurements, and how many of them differ.
    count: int = 0
    differing: int = 0
    #: The first difference: step, metric, its value before, and its value now.
    first: tuple[int, str, float | None, float | None] | None = None

    def __str__(self) -> str:
        """``train/loss of step 11 is 0.7 in attempt 2 and was 0.5 in attempt 1``."""
        assert self.first is not None
        step, metric, before, now = self.first
        name = visible(metric, one_line=True)
        return (
            f"{name} of step {step:,} is {_figure(now)} in attempt {self.attempt} "
            f"and was {_figure(before)} in attempt {self.before}"
        )


class Retrained:
    """Compares what attempts measured again, by the events of a run in the order of their log.

    Kept is what was measured behind the newest checkpoint. Where an attempt goes back to an earlier state of its
    trainer, or takes its batches in parts for lack of memory, another history begins, which is compared with nothing.
    """

    #: The events that matter.
    NAMES: Final = _MEASURED | _BREAKS | {"run_submitted", "run_started", "resume_probe", "checkpoint_saved", "warning"}

    def __init__(self) -> None:
        self.comparisons: list[Comparison] = []
        #: The differences that no event has reported yet, oldest first.
        self.unreported: deque[Comparison] = deque()
        #: The devices of each attempt, by rank.
        self.devices: dict[int, Sequence[str]] = {}
        #: By event and step: the attempt that measured it, and what.
        self._known: dict[tuple[str, int], tuple[int, Mapping[str, float | None]]] = {}
        self._values = 0
        #: What the present attempt measured since it differs; it counts once there is a checkpoint of it.
        self._own: dict[tuple[str, int], tuple[int, Mapping[str, float | None]]] | None = None
        self._now: Comparison | None = None
        #: The step at which another history has begun.
        self._broken_at: int | None = None

    def note(self, event: Mapping[str, Any]) -> None:
        """Record an event, as its line has it."""
        name, step, attempt = event["event"], event["step"] or 0, event["attempt"]
        if name in _MEASURED:
            if self._broken_at is None:
                self._measure((name, step), attempt, event["metrics"])
        elif name == "resume_probe":
            if self._broken_at is None:
                self._measure((name, step), attempt, event["values"])
        elif name == "run_submitted":
            self.devices[attempt] = event["devices"]
        elif name == "run_started":
            self._own = self._now = self._broken_at = None
            self._forget(step)
        elif name == "checkpoint_saved":
            self._save(step)
        elif name in _BREAKS:
            self._broken_at = step
        elif event["code"] in (DIFFERS, EXPECTED) and self.unreported:
            self.unreported.popleft()

    def _measure(self, key: tuple[str, int], attempt: int, metrics: Mapping[str, float | None]) -> None:
        before = self._known.get(key)
        if before is not None and before[0] < attempt:
            self._compare(key[1], attempt, before, metrics)
        kept = self._known if self._own is None else self._own
        if key not in kept and self._values < _MOST_VALUES:
            self._values += len(metrics)
            kept[key] = attempt, metrics

    def _compare(
        self,
        step: int,
        attempt: int,
        earlier: tuple[int, Mapping[str, float | None]],
        metrics: Mapping[str, float | None],
    ) -> None:
        before, known = earlier
        if self._now is None:
            self._now = Comparison(attempt=attempt, before=before, first_step=step, last_step=step)
            self.comparisons.append(self._now)
        now = self._now
        now.count, now.last_step = now.count + 1, step
        different = [
            name for name in metrics if name in known and is_compared(name) and _differ(known[name], metrics[name])
        ]
        if not different:
            return
        now.differing += 1
        if now.first is None:
            name = different[0]
            now.before, now.first = before, (step, name, known[name], metrics[name])
            self.unreported.append(now)
            self._own = {}

    def _save(self, step: int) -> None:
        """A checkpoint is there: no later attempt begins before it, nor from another attempt's history."""
        if self._own is not None:
            self._known, self._own = self._own, None
        self._forget(step)
        if self._broken_at is not None and step >= self._broken_at:
            self._broken_at = None

    def _forget(self, until: int) -> None:
        if any(step <= until for _, step in self._known):
            self._known = {key: value for key, value in self._known.items() if key[1] > until}
        self._values = sum(len(metrics) for _, metrics in self._known.values())


def _differ(before: float | None, now: float | None) -> bool:
    return repr(before) != repr(now)


def _figure(value: float | None) -> str:
    return "not finite" if value is None else repr(value)


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
