"""What came of a check, and of all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from hostcore.conformance.check import Level

Status = Literal["passed", "failed", "blocked", "skipped", "expected_failure"]
STATUSES: Final[tuple[Status, ...]] = ("passed", "failed", "blocked", "skipped", "expected_failure")


@attrs.frozen(kw_only=True)
class CheckResult:
    """What came of one check."""

    id: str
    #: ``blocked``: a check that it requires did not pass. ``skipped``: it does not apply. ``expected_failure``: it
    #: failed, as its author said it would.
    status: Status
    level: Level
    #: One line; empty if it passed.
    message: str = ""
    expected: str = ""
    got: str = ""
    fix: str = ""
    #: Of an exception that the plugin raised.
    traceback: str = ""
    #: Whether it was skipped for want of an example or a harness.
    wants_example: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the plugin keeps the contract, as far as this check goes."""
        return self.status != "failed" or self.level == "should"

    @property
    def certifies(self) -> bool:
        """Whether a plugin with this result can be certified."""
        return self.status == "passed" or (self.status == "skipped" and not self.wants_example)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return attrs.asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "CheckResult":
        """The reverse of :meth:`as_dict`."""
        return cls(**document)


@attrs.frozen(kw_only=True)
class Report:
    """What came of all checks of one plugin."""

    kind: str
    name: str
    distribution: str | None
    version: str | None
    hostcore: str
    api_version: str
    python: str
    #: In milliseconds since 1970, UTC.
    created_ms: int
    results: Sequence[CheckResult]
    #: Whether every check for its kind was made, and not only some.
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether it keeps the contract: no MUST has failed."""
        return all(result.ok for result in self.results)

    @property
    def certified(self) -> bool:
        """Whether it does all that can be asked of it, MUST and SHOULD, and nothing was left unasked."""
        return self.complete and bool(self.results) and all(result.certifies for result in self.results)

    @property
    def summary(self) -> Mapping[Status, int]:
        """The number of results by status."""
        return {status: sum(result.status == status for result in self.results) for status in STATUSES}

    @property
    def line(self) -> str:
        """The whole in a line: ``the trainer digits (hostcore-digits 0.1.0) is certified: 61 passed``."""
        counts = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in self.summary.items() if number)
        verdict = "is certified" if self.certified else "conforms" if self.ok else "does NOT conform"
        if self.ok and not self.complete:
            verdict = "passes what was asked"
        origin = f" ({self.distribution} {self.version})" if self.distribution else ""
        return f"the {self.kind.replace('_', ' ')} {self.name}{origin} {verdict}: {counts}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: what ``hostcore check --json`` writes, and what a plugin ships as ``conformance.json``."""
        return {
            "plugin": {
                "kind": self.kind,
                "name": self.name,
                "distribution": self.distribution,
                "version": self.version,
            },
            "hostcore": self.hostcore,
            "api_version": self.api_version,
            "python": self.python,
            "created_ms": self.created_ms,
            "certified": self.certified,
            "summary": dict(self.summary),
            "results": [result.as_dict() for result in self.results],
        }
