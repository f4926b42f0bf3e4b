"""What attempts used, as records have it; and the question which runs used something."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.errors import Errors
from hostcore.runs.record import RunRecord
from hostcore.runs.used import Used, UsedPlugin, UseQuery, used_by, with_use

FILE = Path("run.json")
DATA = "5f1c22ab90de" + "0" * 52


def plugin(name: str = "digits", version: str | None = "0.1.0", distribution: str | None = "My.Digits") -> UsedPlugin:
    return UsedPlugin(kind="trainer", name=name, distribution=distribution, version=version)


def used(*plugins: UsedPlugin, attempt: int = 1, data: str | None = DATA) -> Used:
    return Used(attempt=attempt, plugins=plugins or (plugin(),), data=data)


def ask(**asked: Any) -> UseQuery:
    return UseQuery.parse(**asked)


class TestAQuestion:
    @pytest.mark.parametrize(
        ("text", "is_meant"),
        [
            ("digits", True),
            ("digits>=0.1,<0.2", True),
            (" digits == 0.1.* ", True),
            ("digits~=0.2", False),
            ("digits>=0.1.1", False),
            ("digit", False),
            ("my-digits/digits", True),
            ("My_Digits/digits==0.1.0", True),
            ("other/digits", False),
        ],
    )
    def test_for_a_plugin_is_for_its_name_its_distribution_and_its_versions(self, text: str, is_meant: bool) -> None:
        assert bool(ask(plugins=[text]).answer([used()])) is is_meant

    @pytest.mark.parametrize(
        ("text", "is_meant"), [("my-digits", True), ("my.digits==0.1", True), ("my-digits>0.1", False)]
    )
    def test_for_a_distribution_is_for_any_of_its_plugins(self, text: str, is_meant: bool) -> None:
        assert bool(ask(distributions=[text]).answer([used()])) is is_meant

    def test_finds_pre_releases_since_they_were_used(self) -> None:
        assert ask(plugins=["digits>=0.1"]).answer([used(plugin(version="0.2.0rc1"))])

    def test_for_an_import_path_is_for_a_plugin_without_a_version(self) -> None:
        entries = [used(plugin("my_module:Trainer", version=None, distribution=None))]
        assert ask(plugins=["my_module:Trainer"]).answer(entries)
        assert not ask(plugins=["my_module:Trainer>=1"]).answer(entries)
        assert ask(plugins=["my_module:Trainer>=1"]).is_unknown(entries)

    def test_of_several_parts_is_for_one_attempt_that_used_all_of_it(self) -> None:
        apart = [used(plugin(version="0.1.0")), used(plugin(version="0.2.0"), attempt=2, data="a" * 64)]
        assert ask(plugins=["digits<0.2"], data=DATA[:8]).answer(apart)
        assert not ask(plugins=["digits>=0.2"], data=DATA[:8]).answer(apart)
        assert not ask(plugins=["digits<0.2", "terminal"]).answer(apart)

    def test_is_answered_with_the_attempts_and_what_was_asked_for_alone(self) -> None:
        entries = [used(plugin(), plugin("terminal")), used(plugin(version="0.2.0"), attempt=3)]
        (found,) = ask(plugins=["digits<0.2"]).answer(entries)
        assert found == used(plugin())

    @pytest.mark.parametrize(
        "asked",
        [
            *({"data": data} for data in ("", "0123456", "xyzxyzxyz", "0" * 65)),
            {"plugins": ["digits>=new"]},
            {"plugins": ["two words"]},
            {"distributions": ["torch[cuda]"]},
        ],
        ids=str,
    )
    def test_that_is_none_is_refused(self, asked: dict[str, Any]) -> None:
        with pytest.raises(Errors):
            ask(**asked)


class TestARunOfWhichItIsUnknown:
    @pytest.mark.parametrize(
        ("entries", "is_unknown"),
        [
            ([], True),
            ([used(attempt=2)], True),
            ([used()], False),
            ([used(data=None)], True),
            ([used(data="")], False),
        ],
    )
    def test_is_one_that_does_not_say_enough(self, entries: list[Used], is_unknown: bool) -> None:
        assert ask(data="a" * 8).is_unknown(entries) is is_unknown

    def test_is_one_with_a_version_that_cannot_be_compared(self) -> None:
        entries = [used(plugin(version="of today"))]
        assert ask(plugins=["digits>1"]).is_unknown(entries)
        assert not ask(plugins=["other>1"]).is_unknown(entries)


class TestARecord:
    @pytest.fixture
    def record(self) -> Callable[..., RunRecord]:
        return lambda **keys: RunRecord(job={"trainer": "digits"}, job_dir="/", **keys)

    def test_of_an_earlier_hostcore_says_what_the_newest_attempt_used(self, record: Callable) -> None:
        plugins = [{"kind": "trainer", "name": "digits", "distribution": "d", "version": "1", "sha256": None}]
        (found,) = used_by(record(plugins=plugins), attempt=3, file=FILE)
        assert (found.attempt, found.plugins[0].version, found.data) == (3, "1", None)
        assert used_by(record(), attempt=0, file=FILE) == []

    def test_has_an_entry_where_something_has_changed(self) -> None:
        first = with_use([], used())
        same = with_use(first, used(attempt=2))
        changed = with_use(same, used(plugin(version="0.2.0"), attempt=3))
        assert same == first
        assert [one.attempt for one in changed] == [1, 3]
        assert with_use(changed, used(attempt=3)) == first  # the attempt was begun again

    @pytest.mark.parametrize(
        "entries",
        [
            5,
            "text",
            ["text"],
            [{"plugins": []}],
            [{"attempt": 0}],
            [{"attempt": 10**30}],
            [{"attempt": "1"}],
            [{"attempt": 1, "plugins": 7}],
            [{"attempt": 1, "plugins": [{"kind": "trainer"}]}],
            [{"attempt": 1, "plugins": [{"kind": "trainer", "name": "x" * 300}]}],
            [{"attempt": 1, "data": 7}],
        ],
    )
    def test_that_says_what_no_run_used_says_nothing(self, record: Callable, entries: Any) -> None:
        assert used_by(record(used=entries, plugins=[{"name": 7}]), attempt=1, file=FILE) == []
