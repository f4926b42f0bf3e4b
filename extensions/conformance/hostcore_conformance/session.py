"""One plugin before all its checks: prerequisites first, each asked once, known failures held to their word."""

import fnmatch
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from hostcore.errors import all_errors, described
from hostcore.job.wording import did_you_mean, near
from hostcore.plugins.attribution import in_package, place, traceback_from
from hostcore.plugins.errors import one_line
from hostcore_conformance.check import Check, checks_for, required_by, table
from hostcore_conformance.errors import ConformanceError, InvalidExample, NoExample, NotApplicable
from hostcore_conformance.example import Example
from hostcore_conformance.result import NOT_ASKED, CheckResult
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef


class Session:
    """Asks one plugin its checks. A context manager: what the checks wrote is removed at the end.

    :param ref: The plugin.
    :param example: What its author gave.
    :raises InvalidExample: A failure is declared for a check that there is not, or without a reason.
    """

    def __init__(self, ref: PluginRef, example: Example) -> None:
        self.ref = ref
        self.example = example
        self.checks = checks_for(ref.kind)
        self._results: dict[str, CheckResult] = {}
        self._errors: dict[str, BaseException] = {}
        #: Whether a frame runs code of the plugin's package.
        self._is_own = in_package(ref.value.partition(":")[0].partition(".")[0])
        self._exits = ExitStack()
        weakref.finalize(self, self._exits.close)  # of a session that is never closed, as in a module of tests
        self._subject: Subject | None = None
        self._require_reasons()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the harness, and remove what the checks wrote."""
        self._exits.close()

    @property
    def subject(self) -> Subject:
        """The plugin, once it is needed."""
        if self._subject is None:
            scratch = Path(tempfile.mkdtemp(prefix="hostcore-check-"))
            self._exits.callback(shutil.rmtree, scratch, ignore_errors=True)
            harness = self._exits.enter_context(self.example.opened_harness())
            self._subject = Subject(self.ref, self.example, scratch=scratch, harness=harness)
        return self._subject

    def select(self, only: str | Sequence[str] = ()) -> tuple[Check, ...]:
        """The checks of some ids, families or patterns (``trainer.*``), in order; all if none are given.

        :raises InvalidExample: One of them names none.
        """
        only = [only] if isinstance(only, str) else only
        for wanted in only:
            if not any(_named(check, wanted) for check in self.checks):
                raise self._unknown(wanted)
        return selected(self.checks, only)

    def run(self, only: str | Sequence[str] = ()) -> Iterator[CheckResult]:
        """Make checks, one after the other.

        :param only: See :meth:`select`. What they require is asked too, without a result of its own.
        """
        for check in self.select(only):
            yield self.result(check)

    def result(self, check: Check) -> CheckResult:
        """Return the result of a check, which is made once."""
        if check.id not in self._results:
            self.judge(check, self._ask(check))
        return self._results[check.id]

    def judge(self, check: Check, found: CheckResult) -> CheckResult:
        """Take what came of a check, here or elsewhere, and hold it against the known failures."""
        self._results[check.id] = self._judged(check, found)
        return self._results[check.id]

    def adopt(self, results: Iterable[CheckResult]) -> None:
        """Go on where another session ended: what it has judged is not asked again."""
        self._results.update((result.id, result) for result in results)

    def known(self, check: Check) -> CheckResult | None:
        """Return the result of a check; None if it was not made."""
        return self._results.get(check.id)

    def error(self, check: Check) -> BaseException | None:
        """Return the exception of a check; None without one."""
        return self._errors.get(check.id)

    def _ask(self, check: Check) -> CheckResult:
        for required in required_by(check, self.checks):
            found = self.result(required)
            if found.status not in ("passed", "skipped"):
                return _result(check, "blocked", _because(required, found, "has not passed"))
            if found.status == "skipped":
                reason = _because(required, found, "was not")
                why = {"wants_example": found.wants_example, "no_example": found.no_example}
                return _result(check, "skipped", reason, **why)
        started = time.perf_counter()
        result = self._outcome(check)
        return attrs.evolve(result, seconds=round(time.perf_counter() - started, 3))

    def _outcome(self, check: Check) -> CheckResult:
        try:
            reason = check.capability(self.subject) if check.capability else None
            if reason is not None:
                return _result(check, "skipped", reason)
            check(self.subject)
        except ConformanceError as error:
            self._errors[check.id] = error
            traceback = traceback_from(error.__cause__, self._is_own) if error.__cause__ else ""
            return _result(
                check,
                "failed",
                error.message,
                expected=error.expected,
                got=error.got,
                fix=error.fix,
                traceback=traceback,
            )
        except NotApplicable as error:
            why = {"wants_example": error.wants_example, "no_example": isinstance(error, NoExample)}
            return _result(check, "skipped", error.reason, **why)
        except HostcoreError as error:
            self._errors[check.id] = error
            message = "; ".join(described(one) for one in all_errors(error))
            traceback = "".join(getattr(one, "traceback", None) or "" for one in all_errors(error))
            return _result(check, "failed", message, traceback=traceback)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - also SystemExit: it is the plugin's, and shown as such
            self._errors[check.id] = error
            return self._raised(check, error)
        return _result(check, "passed", "")

    def _raised(self, check: Check, error: BaseException) -> CheckResult:
        where, who = place(error, self._is_own), "the plugin raised "
        if where is None:
            where, who = place(error, lambda _: True), "no answer, since outside of the plugin's code there was "
        at = f" at {Path(where[0]).name}:{where[1]}" if where else ""
        return _result(
            check,
            "failed",
            f"expected {check.title[:1].lower()}{check.title[1:].rstrip('.')}; {who}{one_line(error)}{at}",
            expected=check.title,
            got=f"{one_line(error)}{at}",
            traceback=traceback_from(error, self._is_own),
        )

    def _judged(self, check: Check, result: CheckResult) -> CheckResult:
        reasons = self.example.expected_failures
        reason = next((reasons[id_] for id_ in check.ids if id_ in reasons), None)
        if reason is None:
            return result
        if result.status == "failed":
            return attrs.evolve(result, status="expected_failure", message=f"{reason} ({result.message})")
        if result.status == "passed":
            return attrs.evolve(
                result,
                status="failed",
                level="must",
                message=f"it passes, though it is declared to fail: {reason!r}. Remove it from expected_failures.",
            )
        return result

    def _require_reasons(self) -> None:
        known = {id_ for check in self.checks for id_ in check.ids}
        for id_, reason in self.example.expected_failures.items():
            if id_ not in known:
                raise self._unknown(id_, "expected_failures: ")
            if not isinstance(reason, str) or not reason.strip():
                raise InvalidExample(
                    f"expected_failures: {id_!r} has no reason",
                    code="conformance.reason",
                    hint="Give the reason in a sentence; readers of the report will ask.",
                )

    def _unknown(self, id_: str, where: str = "") -> InvalidExample:
        families = {check.family for check in self.checks}
        exists = any(id_ in check.ids for check in table().values())
        hint = did_you_mean(near(id_, [*(check.id for check in self.checks), *families]))
        return InvalidExample(
            f"{where}the check {id_!r} is not for a {self.ref.kind.replace('_', ' ')}"
            if exists
            else f"{where}there is no check {id_!r}",
            code="conformance.unknown_check",
            hint=hint or f"`hostcore check --list {self.ref.kind.replace('_', '-')}` shows them.",
        )


def selected(checks: Iterable[Check], only: Sequence[str]) -> tuple[Check, ...]:
    """Those of some ids, families or patterns; all if none are given."""
    return tuple(check for check in checks if not only or any(_named(check, wanted) for wanted in only))


def _because(required: Check, found: CheckResult, became: str) -> str:
    """Return the reason why a check is not made: the beginning of the chain, not all of its links."""
    if found.is_followup:
        return found.message
    return f"{NOT_ASKED}{required.id} {became}: {found.message}"


def _named(check: Check, wanted: str) -> bool:
    # Not fnmatch for variants: [train_step] would be a set of characters.
    families = [id_.partition("[")[0] for id_ in check.ids]
    return wanted in (*check.ids, check.family) or (
        "*" in wanted and any(fnmatch.fnmatchcase(family, wanted) for family in families)
    )


def _result(check: Check, status: Any, message: str, **more: Any) -> CheckResult:
    return CheckResult(id=check.id, status=status, level=check.level, message=message, **more)
