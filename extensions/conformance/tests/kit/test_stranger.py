"""A trainer whose author had only the documentation is certified, and its author's mistakes are noticed."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import pytest

from hostcore_conformance.asking import report_on
from hostcore_conformance.check import table
from hostcore_conformance.example import Example, declared_example
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session
from hostcore_conformance.subject import find_plugin

HERE = Path(__file__).resolve().parent / "stranger"
MISTAKES: dict[str, str] = tomllib.loads((HERE / "mistakes/pyproject.toml").read_text())["project"]["entry-points"][
    "hostcore.trainers"
]


def _example() -> Example:
    found = declared_example("wave-gru", "trainer", start=HERE / "wave_gru")
    assert found is not None
    return found


def _asked(mistake: str) -> str:
    """The check that a mistake's name begins with; one variant of it, if the rest is its name."""
    family, _, how = mistake.partition("--")
    return f"{family}[{how}]" if f"{family}[{how}]" in table() else family


@functools.cache
def _failures(mistake: str) -> list[CheckResult]:
    """What the check that a mistake is named after says to it."""
    with Session(find_plugin(f"wave-gru-mistakes/{mistake}", "trainer"), _example()) as session:
        results = list(session.run([_asked(mistake)]))
    failed = [one for one in results if one.status == "failed"]
    assert failed, [f"{one.id}: {one.status}, {one.message}" for one in results]
    return failed


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write where they stand


def test_a_trainer_written_from_the_documentation_is_certified(installed_plugins: Path) -> None:
    with Session(find_plugin("wave-gru", "trainer"), _example()) as session:
        results = list(session.run())
    assert [f"{one.id}: {one.status}, {one.message}" for one in results if not one.certifies] == []
    assert report_on(session.ref, results).certified


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed_by_the_check_that_is_about_it(mistake: str, installed_plugins: Path) -> None:
    for one in _failures(mistake):
        assert "no answer, since" not in one.message
        assert one.fix or one.traceback, "it does not say what to do"


def test_a_changed_row_is_shown_with_what_it_was_and_what_it_is(installed_plugins: Path) -> None:
    (failed,) = _failures("trainer.leaves_batch_alone--batch-in-place")
    assert "column 'label', row " in failed.message
    assert " is 2, then 1" in failed.message


def test_only_what_is_missing_in_the_state_is_named_as_a_cause(installed_plugins: Path) -> None:
    (failed,) = _failures("trainer.resume_exact--no-scheduler")
    assert failed.fix is not None
    assert "other things differ: state.scheduler (" in failed.fix
    assert "state.optimizer" not in failed.fix


def test_parameters_are_named_by_where_the_state_has_them(installed_plugins: Path) -> None:
    (failed,) = _failures("trainer.parameters_change--other-model")
    assert "state.model." in failed.message
