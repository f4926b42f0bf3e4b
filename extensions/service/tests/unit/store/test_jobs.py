"""The table of jobs, in SQLite and in PostgreSQL."""

import random
from collections.abc import Callable

import attrs
from served import at_once

from hostcore.runs.used import Used, UsedPlugin
from hostcore_hookspecs.launcher import LaunchHandle
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs, TooManyJobs
from hostcore_service.store.uses import kept

Make = Callable[..., StoredJob]


def test_a_job_comes_back_as_it_was_recorded(jobs: Jobs, a_job: Make) -> None:
    plugin = UsedPlugin(kind="k", name="n", distribution="d", version="1\0")
    job = a_job(
        labels={"team": "maps"},
        owner="Zoë",
        idempotency_key="k",
        request_sha256="0" * 64,
        phase="launched",
        handle=LaunchHandle(launcher="x", id="7", details={"queue": ["a", 1.5, None]}),
        max_steps=2**63 - 1,
        exit_code=3_221_225_786,
        used=(Used(attempt=1, plugins=(plugin,), data="0" * 64),),
    )

    assert jobs.add(job) == job
    assert jobs.get("a") == jobs.by_name("a") == jobs.by_key("token", "k") == job
    assert jobs.get("b") is None
    jobs.add(a_job("b", idempotency_key="k", principal="somebody"))
    assert sorted(jobs.run_ids()) == ["a", "b"], "the same key of somebody else is another"

    jobs.add(a_job("c"))
    mine = next(one for one in jobs.leases.claim("me", now=5, limit=9) if one.run_id == "c")
    assert jobs.leases.release(mine, attrs.evolve(mine, detail="a\0b \udcff c"), now=6, due_ms=7)
    assert (found := jobs.get("c")) is not None
    assert found.detail == "a\N{REPLACEMENT CHARACTER}b ? c", "text that no database keeps, as far as it goes"


def test_of_many_that_come_at_once_one_is_recorded_of_a_key_and_no_more_than_may_be(jobs: Jobs, a_job: Make) -> None:
    same = at_once(12, lambda n: jobs.add(a_job(f"job-{n}", idempotency_key="once", labels={"k": "v"})))
    assert {job.run_id for job in same} == jobs.run_ids()
    assert len(jobs.run_ids()) == 1

    others = at_once(12, lambda n: jobs.add(a_job(f"other-{n}"), most_open=6))
    assert sum(isinstance(one, TooManyJobs) for one in others) == 7
    assert len(jobs.run_ids()) == 6


def test_a_claimed_job_is_nobody_elses_until_its_lease_is_over_or_its_holder_has_died(jobs: Jobs, a_job: Make) -> None:
    jobs.add(a_job())
    (first,) = jobs.leases.claim("first", now=10, limit=5)

    assert jobs.leases.claim("second", now=10 + jobs.leases.lease_ms - 1, limit=5) == []
    jobs.leases.renew([first], now=20)
    assert jobs.leases.claim("second", now=10 + jobs.leases.lease_ms, limit=5) == []
    (second,) = jobs.leases.claim("second", now=20 + jobs.leases.lease_ms, limit=5)
    assert second.holder == "second"

    # What is written after the lease was lost is dropped.
    assert not jobs.leases.release(first, first.ended("failed", "", ended_ms=9), now=9, due_ms=9)
    jobs.leases.renew([first], now=10**6)
    jobs.leases.let_go([first], now=0)
    assert jobs.leases.write(second, attrs.evolve(second, phase="launching"), now=99)
    assert (found := jobs.get("a")) is not None
    assert (found.phase, found.status, found.holder) == ("launching", "submitted", "second")
    assert found.held_until_ms == 99 + jobs.leases.lease_ms

    jobs.add(a_job("b"))
    jobs.leases.claim("alive", now=100, limit=1)
    assert sorted(jobs.leases.holders()) == ["alive", "second"]
    jobs.leases.forget(["second"])
    assert [job.run_id for job in jobs.leases.claim("next", now=101, limit=5)] == ["a"]


def test_jobs_of_this_machine_wait_for_room_and_those_of_engines_do_not(jobs: Jobs, a_job: Make) -> None:
    for number in range(3):
        jobs.add(a_job(f"here-{number}", launcher="local", submitted_ms=number))
    jobs.add(a_job("there", launcher="slurm", submitted_ms=9))

    claimed = jobs.leases.claim("me", now=10, limit=8, local_at_once=2)
    assert sorted(job.run_id for job in claimed) == ["here-0", "here-1", "there"]
    assert jobs.leases.claim("me", now=11, limit=8, local_at_once=2) == []

    first = next(job for job in claimed if job.run_id == "here-0")
    jobs.leases.release(first, attrs.evolve(first, phase="launched"), now=12, due_ms=99)
    assert jobs.leases.claim("me", now=13, limit=8, local_at_once=2) == []
    jobs.request_cancel("here-2", "no longer needed", now=14)
    assert [job.run_id for job in jobs.leases.claim("me", now=15, limit=8, local_at_once=2)] == ["here-2"]


def test_claimed_are_those_that_are_due_the_longest_whatever_else_there_is(jobs: Jobs, a_job: Make, seed: int) -> None:
    rng = random.Random(seed)
    moments = rng.sample(range(200), 120)  # no two are due or submitted at the same moment
    there = []
    for moment in moments:
        held = {"holder": "another", "held_until_ms": rng.choice([90, 900])} if rng.random() < 0.2 else {}
        there.append(
            a_job(
                f"job-{moment}",
                launcher=rng.choice(["local", "hostcore-builtin-plugins/local", "slurm", "a", "z"]),
                phase=rng.choice(["queued", "queued", "launching", "launched", "ended"]),
                cancel_ms=rng.choice([None, None, 1]),
                due_ms=moment,
                submitted_ms=200 - moment,
                **held,
            )
        )
    for job in there:
        jobs.add(job)

    def is_local(job: StoredJob) -> bool:
        return job.launcher.endswith("local")

    def waits(job: StoredJob) -> bool:
        return is_local(job) and job.phase == "queued" and job.cancel_ms is None

    begun = sum(is_local(job) and job.phase in ("launching", "launched") for job in there)
    begun += sum(is_local(job) and job.phase == "queued" and job.held_until_ms > 100 for job in there)
    due = [job for job in there if job.phase != "ended" and job.due_ms <= 100 and job.held_until_ms <= 100]
    due.sort(key=lambda job: job.due_ms)
    waiting = [job for job in due if waits(job)][:2]
    wanted = sorted([job for job in due if not waits(job)] + waiting, key=lambda job: job.due_ms)[:12]
    claimed = jobs.leases.claim("me", now=100, limit=12, local_at_once=begun + 2)
    assert {job.run_id for job in claimed} == {job.run_id for job in wanted}


def test_of_many_that_claim_at_once_each_job_goes_to_one_as_far_as_there_is_room_here(jobs: Jobs, a_job: Make) -> None:
    for number in range(12):
        jobs.add(a_job(f"there-{number}"))
        jobs.add(a_job(f"here-{number}", launcher="local"))
    results = at_once(6, lambda n: jobs.leases.claim(f"holder-{n}", now=10, limit=20, local_at_once=3))

    claimed = [job.run_id for result in results for job in result]
    assert sorted(one for one in claimed if one.startswith("there")) == sorted(f"there-{n}" for n in range(12))
    assert len({one for one in claimed if one.startswith("here")}) == len(claimed) - 12 == 3


def test_a_wish_to_cancel_that_comes_while_somebody_is_busy_is_looked_at_at_once(jobs: Jobs, a_job: Make) -> None:
    jobs.add(a_job())
    (busy,) = jobs.leases.claim("me", now=10, limit=1)
    jobs.request_cancel("a", "no longer needed", now=11)
    jobs.request_cancel("a", "another reason", now=12)
    jobs.leases.release(busy, attrs.evolve(busy, phase="launched"), now=13, due_ms=10_000)

    (again,) = jobs.leases.claim("me again", now=14, limit=1)
    assert (again.cancel_reason, again.cancel_ms) == ("no longer needed", 11)


def test_of_many_that_resume_one_job_one_does(jobs: Jobs, a_job: Make) -> None:
    ended = a_job(phase="ended", status="failed")
    jobs.add(ended)
    results = at_once(8, lambda n: jobs.relaunch(ended, ended.queued_again(ended.job, f"a.{n}", now=5)))

    assert results.count(True) == 1
    assert (found := jobs.get("a")) is not None
    assert found.launch_id == f"a.{results.index(True)}"


def test_of_a_job_that_says_too_much_the_newest_is_kept() -> None:
    plugin = UsedPlugin(kind="trainer", name="tiny", distribution="told", version="1.0")
    many = [Used(attempt=attempt, plugins=(plugin,)) for attempt in range(1, 3000)]
    assert [kept(many)[0].attempt, kept(many)[-1].attempt] == [2000, 2999]
