"""A trainer whose author had only the documentation is certified, and its author's mistakes are noticed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from hostcore_conformance.asking import report_on
from hostcore_conformance.check import table
from hostcore_conformance.example import Example, declared_example
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session
from hostcore_conformance.subject import find_plugin

AskAlone = Callable[[Session, str], list[CheckResult]]
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


#: Words that a failure has, beside what is asked of all of them.
WORDS = {
    "trainer.leaves_batch_alone--batch-in-place": ("column 'label', row ", " is 2, then 1"),
    "trainer.parameters_change--other-model": ("state.model.",),
    "trainer.resume_exact--no-scheduler": ("other things differ: state.scheduler (",),
}


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write where they stand


def test_a_trainer_written_from_the_documentation_is_certified(installed_plugins: Path) -> None:
    with Session(find_plugin("wave-gru", "trainer"), _example()) as session:
        results = list(session.run())
    assert [f"{one.id}: {one.status}, {one.message}" for one in results if not one.certifies] == []
    assert report_on(session.ref, results).certified


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed_by_the_check_that_is_about_it(mistake: str, ask_alone: AskAlone) -> None:
    with Session(find_plugin(f"wave-gru-mistakes/{mistake}", "trainer"), _example()) as session:
        results = ask_alone(session, _asked(mistake))
    failed = [one for one in results if one.status == "failed"]
    assert failed, [f"{one.id}: {one.status}, {one.message}" for one in results]
    for one in failed:
        assert "no answer, since" not in one.message
        assert one.fix or one.traceback, "it does not say what to do"
        for words in WORDS.get(mistake, ()):
            assert words in one.message + one.fix
        # Only what is missing in the state is named as a cause.
        assert "state.optimizer" not in one.fix or mistake not in WORDS
