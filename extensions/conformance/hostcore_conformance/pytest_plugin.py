"""The kit's part of pytest: a line for each plugin that was checked, ``--conformance-report`` and ``-certified``.

Every pytest of an environment that has hostcore loads it, so it imports nothing else of the kit before a check is made.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

#: Of a test's report: the plugin, and what came of the check. It also comes back from the workers of pytest-xdist.
#: Not a user property, which would stand in the files of ``--junitxml``.
_ATTRIBUTE: Final = "hostcore_conformance"
_OPTION: Final = "--conformance-report"
_CERTIFIED: Final = "--conformance-certified"
_PARTIAL: Final = "--conformance-partial"
#: Whether the processes that the checks need have been started.
_PREPARED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called once by pytest."""
    group = parser.getgroup("hostcore")
    group.addoption(_OPTION, metavar="FILE", help="write what the conformance checks of hostcore found, as JSON")
    group.addoption(
        _CERTIFIED,
        action="store_true",
        help="fail whatever keeps a plugin from being certified: a SHOULD, a known failure",
    )
    group.addoption(
        _PARTIAL, action="store_true", help="skip the conformance checks that need an example of the plugin's use"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest before the tests: the report must have a place where it can be written."""
    if file := config.getoption(_OPTION):
        from hostcore_conformance.report_files import ReportUnwritable, require_writable

        try:
            require_writable(Path(file), _OPTION)
        except ReportUnwritable as error:
            raise pytest.UsageError(error.message) from error


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Called by pytest before each test: how strict a check is to be, and before the first, what all of them need."""
    if (bound := _bound(item)) is not None:
        bound.certified = item.config.getoption(_CERTIFIED)
        bound.partial = item.config.getoption(_PARTIAL)
        # A worker of pytest-xdist makes some of the tests, and does not know which.
        if _PREPARED not in item.config.stash and not hasattr(item.config, "workerinput"):
            item.config.stash[_PREPARED] = True
            _prepare(item.session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest after each part of a test: what the check found goes with the test's report."""
    report = yield
    bound = _bound(item)
    if call.when == "call" and bound is not None and bound.outcome is not None:
        setattr(report, _ATTRIBUTE, bound.outcome)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_exception_interact(node: Any, call: pytest.CallInfo[Any]) -> None:
    """Called by pytest after a failure: ``--pdb`` stops where the plugin raised, or where the check did."""
    bound = _bound(node)
    if bound is not None and bound.error is not None:
        call.excinfo = pytest.ExceptionInfo.from_exception(bound.error)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Called once by pytest, at the end."""
    outcomes = sorted(_outcomes(terminalreporter), key=lambda one: (one["plugin"]["kind"], one["plugin"]["name"]))
    if not outcomes:
        return
    from hostcore_conformance.asking import reports_of
    from hostcore_conformance.report_files import as_json, write_whole

    reports = reports_of(outcomes)
    for report in reports:
        terminalreporter.write_line(f"hostcore: {report.line}")
    if file := config.getoption(_OPTION):
        write_whole(Path(file), as_json(reports))


def _prepare(session: pytest.Session) -> None:
    """Let what the checks need be imported while the first of them are made: that takes as long as many of them."""
    from hostcore_conformance.process.fork_server import fork_server, makes_runs

    families = {family for item in session.items if (bound := _bound(item)) is not None for family in bound.families}
    if makes_runs(families):
        fork_server().prepare(fresh=makes_runs(families, fresh=True))


def _bound(item: pytest.Item) -> Any:
    """The check that a test makes, a ``BoundCheck``; None of any other test."""
    callspec = getattr(item, "callspec", None)
    bound = callspec.params.get("check") if callspec is not None else None
    return bound if hasattr(bound, "certified") and hasattr(bound, "outcome") else None


def _outcomes(terminalreporter: Any) -> Iterator[dict[str, Any]]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if outcome := getattr(report, _ATTRIBUTE, None):
                yield outcome
