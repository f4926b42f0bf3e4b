"""Every check passes on a reference plugin, and fails on a plugin that breaks what it is about."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from hostcore_conformance.check import checks_for, table
from hostcore_conformance.checks.trainer import surroundings
from hostcore_conformance.checks.trainer.surroundings import run_alone
from hostcore_conformance.example import Example, declared_example
from hostcore_conformance.result import CheckResult
from hostcore_conformance.session import Session
from hostcore_conformance.subject import Subject, find_plugin
from hostcore_hookspecs.kinds import KINDS

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"
AskAlone = Callable[[Session, str], list[CheckResult]]
_KIND_BY_GROUP = {kind.group: kind.name for kind in KINDS.values()}


@attrs.frozen
class Breaker:
    """A plugin that breaks one thing. Its name says which check is to find it: ``id``, or ``id--how``."""

    kind: str
    name: str
    distribution: str
    folder: Path

    @property
    def family(self) -> str:
        """The check that it breaks, or one of its variants."""
        return self.name.partition("--")[0]

    @property
    def check(self) -> str:
        """What is asked: the variant that its name says, or else the whole family."""
        variant = "{}[{}]".format(*self.name.partition("--")[::2])
        return variant if variant in table() else self.family


def _breakers() -> Iterator[Breaker]:
    known = {one for check in table().values() for one in (check.family, check.alias)}
    for file in sorted(HERE.glob("broken/*/pyproject.toml")):
        project = tomllib.loads(file.read_text())["project"]
        for group, entries in project["entry-points"].items():
            for name in entries:
                if name.partition("--")[0] in known:
                    yield Breaker(_KIND_BY_GROUP[group], name, project["name"], file.parent)


BREAKERS = list(_breakers())


def _example(name: str, kind: str, folder: Path) -> Example:
    """The plugin's own example, or that of the reference plugin."""
    return (
        declared_example(name, kind, start=folder)
        or declared_example("reference", kind, start=REFERENCE)
        or Example(folder=REFERENCE)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_passes_on_the_reference_plugin(kind: str, installed_plugins: Path) -> None:
    with Session(find_plugin("reference", kind), _example("reference", kind, REFERENCE)) as session:
        results = list(session.run())
    assert [f"{one.id}: {one.status}, {one.message}" for one in results if not one.certifies] == []
    assert [one.id for one in results] == [one.id for one in checks_for(kind)]
    own = [one for one in results if one.id.startswith(f"{kind}.")]
    assert [f"{one.id}: {one.message}" for one in own if one.status != "passed"] == []


def test_every_check_for_all_kinds_has_something_to_ask_of_one(installed_plugins: Path) -> None:
    left = {check.id for check in table().values() if check.kind == "plugin"}
    for kind in KINDS:
        with Session(find_plugin("reference", kind), _example("reference", kind, REFERENCE)) as session:
            left -= {one.id for one in session.run(sorted(left)) if one.status == "passed"}
        if not left:
            return
    assert left == set()


@pytest.mark.parametrize("breaker", BREAKERS, ids=[f"{one.kind}:{one.name}" for one in BREAKERS])
def test_a_broken_plugin_fails_the_check_that_it_breaks(
    breaker: Breaker, ask_alone: AskAlone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vocabulary.txt").write_text("a b c")
    monkeypatch.chdir(tmp_path)  # some read and write where they stand
    ref = find_plugin(f"{breaker.distribution}/{breaker.name}", breaker.kind)
    with Session(ref, _example(breaker.name, breaker.kind, breaker.folder)) as session:
        results = ask_alone(session, breaker.check)
    failed = [one for one in results if one.status == "failed"]
    assert failed, [f"{one.id}: {one.status}, {one.message}" for one in results]
    for one in failed:
        assert one.message
        assert "no answer, since" not in one.message
        assert one.fix or one.traceback or "\n" in one.message, "it does not say what to do"


def test_a_leak_is_found_although_somebody_else_ends_a_thread_meanwhile(
    ask_alone: AskAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    theirs = threading.Thread(target=over.wait, name="somebody else's")
    theirs.start()

    def run(subject: Subject) -> object:
        over.set()
        theirs.join()
        return run_alone(subject)

    monkeypatch.setattr(surroundings, "run_alone", run)
    name, kind = "trainer.leaves_nothing_running--thread", "trainer"
    ref = find_plugin(f"hostcore-broken-trainers/{name}", kind)
    with Session(ref, _example(name, kind, HERE / "broken/trainers")) as session:
        (result,) = ask_alone(session, "trainer.leaves_nothing_running")
    assert (result.status, "prefetch" in result.message) == ("failed", True), result


def test_every_check_is_broken_by_somebody() -> None:
    broken = {breaker.family for breaker in BREAKERS}
    assert {check.family for check in table().values()} - broken == set()


def test_every_check_is_documented_and_requires_checks_that_there_are() -> None:
    families = {check.family for check in table().values()}
    for check in table().values():
        assert check.title.endswith("."), check.id
        assert "\n\n" in check.doc, f"{check.id} says what, and not why"
        assert set(check.requires) <= families, check.id
        assert check.since in ("1.0.0", "1.1.0")
