"""The kit in pytest: every check is a test."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore_conformance.asking import open_session
from hostcore_conformance.check import Check, with_required
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.session import Session


class ConformanceWarning(UserWarning):
    """A plugin does not do what it should (SHOULD)."""


class BoundCheck:
    """A check and the plugin that is asked it: what a test calls."""

    def __init__(self, session: Session, check: Check) -> None:
        self._session = session
        self.check = check
        #: Whether all counts as failed that keeps a plugin from being certified; set by ``--conformance-certified``.
        self.certified = False
        #: Whether it is accepted that there is no example; set by ``--conformance-partial``.
        self.partial = False

    def __repr__(self) -> str:
        return self.check.id

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The plugin and what came of the check, as plain JSON; None before it was asked."""
        result = self._session.known(self.check)
        return {"plugin": attrs.asdict(self._session.ref), "result": result.as_dict()} if result else None

    @property
    def error(self) -> BaseException | None:
        """The exception that the check ended with; of a check that reports one of the plugin's, that one."""
        error = self._session.error(self.check)
        return (error.__cause__ or error) if isinstance(error, ConformanceError) else error

    @property
    def families(self) -> set[str]:
        """The check, and those that it requires."""
        return {check.family for check in with_required([self.check], self._session.checks)}

    def __call__(self) -> None:
        """Ask. Blocked and inapplicable checks are skipped, known failures are xfailed; a SHOULD is a warning.

        Without the example that it needs it fails, and what builds on it is skipped.

        :raises ConformanceError: The plugin does not hold.
        """
        import pytest

        __tracebackhide__ = True
        result = self._session.result(self.check)
        if self.certified and not result.certifies:
            pytest.fail(f"{result.id} keeps it from being certified: {result.status}, {result.message}", pytrace=False)
        if result.status == "failed" and result.level == "should":
            warnings.warn(f"{result.id}: {result.message}", ConformanceWarning, stacklevel=2)
        elif result.status == "failed":
            raise ConformanceError(
                expected=result.expected or self.check.title, got=result.got or result.message, fix=result.fix
            ) from _of_plugin(self._session.error(self.check))
        elif result.status == "expected_failure":
            pytest.xfail(result.message)
        elif result.no_example and not result.is_followup and not self.partial:
            pytest.fail(f"not asked: {result.message}; --conformance-partial accepts that", pytrace=False)
        elif result.status in ("blocked", "skipped"):
            pytest.skip(result.message)


def _of_plugin(error: BaseException | None) -> BaseException | None:
    """The exception that the plugin raised, if one did, without the kit's frames in front of its own."""
    if isinstance(error, ConformanceError):
        error = error.__cause__
    if error is None:
        return None
    traceback = error.__traceback__
    while traceback is not None and _is_of_kit(traceback.tb_frame.f_globals.get("__name__", "")):
        traceback = traceback.tb_next
    return error.with_traceback(traceback) if traceback is not None else error


def _is_of_kit(module: str) -> bool:
    return module.startswith(("hostcore.", "hostcore_conformance."))


def parametrize_with_checks(
    name: str,
    *,
    kind: str | None = None,
    settings: Mapping[str, Any] | None = None,
    job: str | Path | Mapping[str, Any] | None = None,
    harness: Any = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of every check of a plugin.

    ::

        @parametrize_with_checks("my-trainer")
        def test_conformance(check):
            check()

    The arguments are those of :func:`~hostcore_conformance.asking.check_plugin`; the ``pyproject.toml`` is looked for
    from the test's own folder on.
    """
    import pytest

    caller = inspect.stack()[1].filename
    session = open_session(
        name,
        kind=kind,
        settings=settings,
        job=job,
        harness=harness,
        expected_failures=expected_failures,
        start=Path(caller).parent,
    )
    checks = [BoundCheck(session, check) for check in session.checks]
    return pytest.mark.parametrize("check", checks, ids=[bound.check.id for bound in checks])
