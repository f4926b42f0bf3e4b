"""Result of a check, and of all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from hostcore_conformance.check import Level

Status = Literal["passed", "failed", "blocked", "skipped", "expected_failure"]
#: How the message of a check begins that was not asked because of another.
NOT_ASKED: Final = "not asked, because "
_OUTCOMES: Final = ("passed", "failed", "warning", "blocked", "skipped", "expected_failure")

Verdict = Literal["certified", "conforms", "passes what was asked", "not fully checked", "fails"]
_VERDICTS: Final[Mapping[Verdict, str]] = {
    "certified": "is certified",
    "conforms": "conforms",
    "passes what was asked": "passes what was asked",
    "not fully checked": "is NOT fully checked",
    "fails": "does NOT conform",
}


@attrs.frozen(kw_only=True)
class CheckResult:
    """Result of one check."""

    id: str
    #: ``blocked``: a check that it requires did not pass. ``skipped``: it does not apply. ``expected_failure``: it
    #: failed, as its author had announced.
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
    #: Whether it was skipped because there is no example of the plugin's use at all.
    no_example: bool = False
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the plugin keeps the contract, as far as this check goes."""
        return self.status != "failed" or self.level == "should"

    @property
    def outcome(self) -> str:
        """The status; ``warning`` for a SHOULD that failed, which does not make a plugin wrong."""
        return "warning" if self.status == "failed" and self.level == "should" else self.status

    @property
    def family(self) -> str:
        """The check without its variant."""
        return self.id.partition("[")[0]

    @property
    def is_followup(self) -> bool:
        """True if it was not made because another was not, whose message has the reason."""
        return self.message.startswith(NOT_ASKED)

    @property
    def certifies(self) -> bool:
        """True if a plugin with this result can be certified."""
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
    """Results of all checks of one plugin."""

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
        """True if it keeps the contract: no MUST has failed."""
        return all(result.ok for result in self.results)

    @property
    def certified(self) -> bool:
        """True if it passed every check that can be made, MUST and SHOULD, and none was left out."""
        return self.complete and bool(self.results) and all(result.certifies for result in self.results)

    @property
    def is_fully_checked(self) -> bool:
        """True if there was an example of its use for all checks that need one."""
        return not any(result.no_example for result in self.results)

    @property
    def verdict(self) -> Verdict:
        """Verdict about the plugin."""
        if not self.ok:
            return "fails"
        if not self.is_fully_checked:
            return "not fully checked"
        if self.certified:
            return "certified"
        return "conforms" if self.complete else "passes what was asked"

    @property
    def summary(self) -> Mapping[str, int]:
        """The number of results by status. ``failed`` are MUSTs; a SHOULD that failed is a ``warning``."""
        return {outcome: sum(result.outcome == outcome for result in self.results) for outcome in _OUTCOMES}

    @property
    def line(self) -> str:
        """The whole in a line: ``the trainer digits (hostcore-digits 0.1.0) is certified: 61 passed``."""
        unasked = sum(result.no_example for result in self.results)
        numbers = {**self.summary, "skipped": self.summary["skipped"] - unasked, "not asked": unasked}
        counts = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in numbers.items() if number)
        verdict = _VERDICTS[self.verdict]
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
            "verdict": self.verdict,
            "summary": dict(self.summary),
            "results": [result.as_dict() for result in self.results],
        }
