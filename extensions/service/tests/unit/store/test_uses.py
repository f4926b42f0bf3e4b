"""Which jobs used what, in SQLite and in PostgreSQL."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hostcore.runs.used import InvalidQuery, Used, UsedPlugin, UseQuery
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Filter, Jobs
from hostcore_service.store.uses import kept

Make = Callable[..., StoredJob]
DATA = "ab" * 32


def used(*versions: str | None, attempt: int = 1, data: str | None = DATA) -> Used:
    plugins = [UsedPlugin(kind="trainer", name="tiny", distribution="Told.By", version=one) for one in versions]
    return Used(attempt=attempt, plugins=tuple(plugins), data=data)


def found(jobs: Jobs, *, statuses: tuple[str, ...] = (), **asked: Any) -> tuple[list[str], int]:
    wanted = Filter(statuses=statuses, use=UseQuery.parse(**asked))
    page = jobs.page(wanted, after=None, limit=100)
    return sorted(job.run_id for job in page), jobs.unknown(wanted)


@pytest.fixture
def several(jobs: Jobs, a_job: Make) -> Jobs:
    """Of two versions and two data; one of a version that is none; two that say less, or nothing."""
    jobs.add(a_job("a", used=(used("1.0"),)))
    jobs.add(a_job("b", used=(used("1.0", data="cd" * 32), used("1.1", attempt=2))))
    jobs.add(a_job("c", used=(used("of today"),), status="failed"))
    jobs.add(a_job("d"))
    jobs.add(a_job("e", used=(used(None, attempt=3, data=None),)))
    return jobs


def test_a_job_comes_back_with_what_it_used(several: Jobs) -> None:
    job = several.get("b")
    assert job is not None
    assert job.used == (used("1.0", data="cd" * 32), used("1.1", attempt=2))


@pytest.mark.parametrize(
    ("asked", "run_ids", "unknown"),
    [
        ({"plugins": ["tiny"]}, ["a", "b", "c", "e"], 1),
        ({"plugins": ["tiny<1.1"]}, ["a", "b"], 3),
        ({"plugins": ["tiny>1.0"]}, ["b"], 3),
        ({"plugins": ["told-by/tiny==1.0"]}, ["a", "b"], 3),
        ({"plugins": ["told/tiny"]}, [], 2),
        ({"distributions": ["told_by==1.1"]}, ["b"], 3),
        ({"data": DATA[:8]}, ["a", "b", "c"], 2),
        ({"data": DATA, "plugins": ["tiny==1.0"]}, ["a"], 3),
        ({"data": DATA, "plugins": ["tiny==1.1"]}, ["b"], 3),
        ({"plugins": ["'OR'%"]}, [], 2),
        ({"plugins": ["tiny"], "statuses": ("failed",)}, ["c"], 0),
    ],
)
def test_one_attempt_has_to_have_used_all_of_it(
    several: Jobs, asked: dict[str, Any], run_ids: list[str], unknown: int
) -> None:
    assert found(several, **asked) == (run_ids, unknown)


def test_data_that_begin_alike_are_not_mixed(several: Jobs, a_job: Make) -> None:
    several.add(a_job("f", used=(used("1.0", data="ab" * 31 + "00"),)))
    with pytest.raises(InvalidQuery, match="2 fingerprints"):
        found(several, data="ab" * 8)
    assert found(several, data=DATA)[0] == ["a", "b", "c"]


def test_what_a_job_used_is_found_as_it_is_known_last(jobs: Jobs, a_job: Make) -> None:
    jobs.add(a_job("a"))
    assert found(jobs, plugins=["tiny"]) == ([], 1)
    for versions in (("1.0",), ("1.1",)):
        (mine,) = jobs.leases.claim("me", now=10**6, limit=1)
        assert jobs.leases.release(mine, attrs.evolve(mine, used=(used(*versions),)), now=10**6, due_ms=0)
    assert found(jobs, plugins=["tiny==1.0"]) == ([], 0)
    assert found(jobs, plugins=["tiny==1.1"]) == (["a"], 0)


def test_text_that_no_database_keeps_hinders_nothing(jobs: Jobs, a_job: Make) -> None:
    jobs.add(a_job("a", used=(used("1\0"),)))
    assert found(jobs, plugins=["tiny"]) == (["a"], 0)


def test_of_a_job_that_says_too_much_the_newest_is_kept() -> None:
    many = [used("1.0", attempt=attempt) for attempt in range(1, 3000)]
    assert [kept(many)[0].attempt, kept(many)[-1].attempt] == [2000, 2999]
