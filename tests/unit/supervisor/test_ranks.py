"""Several ranks under one supervisor: they begin together, and however one of them ends, all end, and the run once."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from actors import GONE, SUMMARY, staged

from hostcore.errors import Errors
from hostcore.events.reader import read_events
from hostcore.events.writer import RankLog
from hostcore.plugins.errors import as_content
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.evaluate import OneOfSeveral, evaluate
from hostcore.supervisor.interrupts import Asked
from hostcore.supervisor.plan import RunPlan
from hostcore.verification.log_checks import check_log
from hostcore.verification.log_record import LogRecord
from hostcore_hookspecs import HostcoreError
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import (
    ENDS,
    Event,
    Metrics,
    RunFailed,
    RunPreempted,
    RunSucceeded,
    Warning,
)

EXPLODED = RunError(type="ValueError", message="the loss has exploded", traceback="Traceback …", plugin="mine")
#: What it writes then.
LOST_TOUCH = RunFailed(error=GONE)
DISK_FULL = {"type": "DiskFull", "message": "no room", "rank": 1}
INVALID = as_content(HostcoreError("no such column", pointer="/dataset"))
ON_A_GPU = {**SUMMARY, "device": "cuda:0"}
TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")


@pytest.fixture
def pair(plan: Callable[..., RunPlan]) -> Callable[..., RunPlan]:
    """``pair(grace_seconds=1)``: the plan of a job on two ranks."""
    return lambda **keys: plan(devices=["cpu", "cpu"], **keys)


def written(plan: RunPlan) -> list[Event]:
    return [event for event, _ in read_events(plan.directory.events)]


def ends(plan: RunPlan) -> list[str]:
    return [event.name for event in written(plan) if event.name in ENDS]


class TestTheBeginning:
    def test_nobody_goes_before_all_are_ready_and_one_that_dies_before_fails_the_run(self, pair: Callable) -> None:
        with staged(pair()) as stage:
            first, second = stage.actors
            first.say("ready", SUMMARY)
            second.exit(3)
            result = stage.result()
            assert first.heard() == []
        assert (result.status, result.error.type, result.error.rank) == ("failed", "WorkerDied", 1)
        assert result.error.message.startswith("the worker of rank 1 exited with code 3")
        assert first.done == ["kill"]

    @pytest.mark.parametrize(
        ("words", "says", "pointer"),
        [
            ([("ready", SUMMARY), ("invalid", INVALID)], "no such column", "/dataset"),
            ([("invalid", INVALID), ("ready", SUMMARY)], "no such column", "/dataset"),
            ([("invalid", INVALID), ("invalid", INVALID)], "no such column", "/dataset"),
            ([("ready", ON_A_GPU), ("ready", ON_A_GPU)], "2 ranks cannot share cuda:0", "/devices"),
        ],
    )
    def test_a_job_that_a_rank_finds_invalid_is_refused_once_for_all_and_leaves_nothing(
        self, pair: Callable, words: list[Any], says: str, pointer: str
    ) -> None:
        with staged(pair()) as stage:
            for actor, (kind, content) in zip(stage.actors, words, strict=True):
                actor.say(kind, content)
            with pytest.raises(Errors, match=says) as caught:
                stage.result()
            assert [actor.done for actor in stage.actors] == [["kill"], ["kill"]]
        assert [error.pointer for error in caught.value.errors] == [pointer]
        assert not pair().directory.path.exists()


class TestAFailure:
    """After any of these nobody is left alive, and the run has one end."""

    @pytest.mark.parametrize(
        ("acts", "kind", "rank", "says"),
        [
            # Of another rank than the first, it is the one shown.
            ([(1, "fail", EXPLODED), (0, "fail", GONE)], "ValueError", 1, "exploded"),
            # Without a word, it counts before what others say of it.
            ([(0, "write", LOST_TOUCH), (1, "exit", -signal.SIGKILL), (0, "exit", 1)], "WorkerDied", 1, "by SIGKILL"),
            ([(0, "exit", -signal.SIGSEGV), (1, "fail", GONE)], "SegmentationFault", 0, "SIGSEGV"),
            # The first stands in a collective that nobody will join.
            ([(1, "fail", EXPLODED)], "ValueError", 1, "exploded"),
            # The log could not take it.
            ([(1, "say", "failed", DISK_FULL), (1, "exit", 1), (0, "fail", GONE)], "DiskFull", 1, "no room"),
        ],
    )
    def test_that_was_first_is_how_the_run_has_failed(
        self, pair: Callable, acts: list[Any], kind: str, rank: int, says: str
    ) -> None:
        error = self.play(pair, acts)
        assert (error.type, error.rank, says in error.message) == (kind, rank, True)

    def play(self, pair: Callable, acts: list[Any]) -> Any:
        with staged(pair()) as stage:
            actors = stage.begin()
            for of, act, *arguments in acts:
                getattr(actors[of], act)(*arguments)
            result = stage.result()
            assert all(actor.poll() for actor in actors)
        assert ends(pair()) == ["run_failed"]
        assert written(pair())[-1].payload.error == result.error
        return result.error

    def test_counts_before_what_follows_from_it_whoever_is_heard_first(
        self, pair: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hostcore.supervisor.attempt.supervise.SETTLE_SECONDS", 60.0)  # both have their say
        error = self.play(pair, [(0, "fail", GONE), (1, "fail", EXPLODED)])
        assert (error.rank, error.plugin, written(pair())[-1].src[:2]) == (1, "mine", (1, 1))

    def test_of_two_is_the_earlier_one(self, pair: Callable) -> None:
        with staged(pair()) as stage:
            for actor, time_ms in zip(stage.begin(), (2000, 1000), strict=True):
                actor.now_ms = time_ms
                actor.write(RunFailed(error=RunError(type="KeyError", message="x", rank=actor.rank)))
            for actor in stage.actors:
                actor.exit(1)
            assert stage.result().error.rank == 1

    def test_after_rank_0_has_ended_in_good_order_counts_unless_it_only_says_that_others_have_left(
        self, pair: Callable
    ) -> None:
        with staged(pair()) as stage:
            first, second = stage.begin()
            first.end(RunSucceeded())
            second.fail(GONE, step=10)
            assert stage.result().status == "succeeded"
        assert ends(pair()) == ["run_succeeded"]
        with staged(pair(run_id="b")) as stage:
            first, second = stage.begin()
            first.end(RunSucceeded())
            second.fail(EXPLODED)
            assert (stage.result().status, stage.result().error.rank) == ("failed", 1)


class TestStopping:
    def test_one_that_does_not_follow_has_its_grace_and_the_others_word_does_not_count(self, pair: Callable) -> None:
        with staged(pair(grace_seconds=0.2)) as stage:
            first, second = stage.begin()
            stage.interrupts.first = TERM
            first.hear()
            first.end(RunPreempted(reason=TERM.reason), step=4)
            stage.interrupts.hurried = True  # from now on the other one has its grace
            result = stage.result()
            assert (first.done, second.done) == ([], ["kill"])
        assert (result.status, result.reason) == ("preempted", "received SIGTERM; killed after 0.2 s")

    def test_ranks_that_make_no_progress_are_all_aborted_and_their_stacks_shown(self, pair: Callable) -> None:
        with staged(pair(stall_seconds=0.3)) as stage:
            actors = stage.begin()
            result = stage.result()
            assert [actor.done for actor in actors] == [["abort"], ["abort"]]
        assert (result.error.type, result.error.rank) == ("Stalled", None)
        for rank in range(2):
            assert f"rank {rank}:\nthe stack of rank {rank}" in result.error.traceback
        assert "one that alone has called ctx.request_best or ctx.request_restore" in result.error.hint


def _words(asked: Asked) -> dict[str, str]:
    return {"reason": asked.reason, "requested_by": asked.requested_by}


class TestTheLog:
    def test_has_the_warnings_of_all_ranks_and_one_end(self, pair: Callable) -> None:
        with staged(pair()) as stage:
            first, second = stage.begin()
            first.write(Metrics(metrics={"train/loss": 0.5}), step=4)
            second.write(Warning(code="x", message="of rank 1"), step=4)
            second.end(RunSucceeded())
            first.end(RunSucceeded())
            assert stage.result().step == 10
        events = written(pair())
        assert [event.src[0] for event in events if event.name == "warning" and event.src] == [1]
        assert [event.src[:2] for event in events if event.name in ENDS] == [(0, 1)]
        checks = {(one.id, one.path): one.status for one in _checked(pair())}
        assert set(checks.values()) == {"ok"}
        assert ("log.merged", "logs/rank-1.attempt-1.jsonl") in checks

    def test_of_a_dead_supervisors_attempt_gains_one_end_of_its_ranks(self, pair: Callable, past: Callable) -> None:
        opening = past(pair()).attempt()
        for rank, payload in enumerate((RunPreempted(reason="the supervisor is gone"), RunFailed(error=GONE))):
            opening.directory.contract(1, rank).write_text("{}")
            log = RankLog(opening.directory.rank_events(1, rank), clock=lambda rank=rank: 1000 + rank)
            log.write(Warning(code="x", message=f"of rank {rank}"), step=3)
            log.write(payload, step=3)
        for attempt in (2, 3):
            journal = Journal(past(pair()).attempt(attempt), pair().job, ranks=2)
            journal.open()
            journal.end(RunSucceeded())
        told = [(event.attempt, event.name) for event in written(pair())]
        assert told == [
            *[(1, "warning"), (1, "warning"), (1, "run_preempted")],
            *[(2, "run_succeeded"), (3, "run_succeeded")],
        ]


def _checked(plan: RunPlan) -> list[Any]:
    result, log = RunResult.read(plan.directory.result), LogRecord.read(plan.directory.events)
    return list(check_log(plan.directory, log, result, newest_attempt=1, running=False))


def test_a_withdrawn_attempt_of_an_older_run_leaves_nothing_of_any_rank(pair: Callable, past: Callable) -> None:
    run = past(pair())
    run.attempt()
    run.result("failed")
    before = {name: content for name, content in run.tree().items() if "record" not in name}
    with staged(pair()) as stage:
        for actor in stage.actors:
            actor.output.write_text("x")
        stage.actors[1].say("invalid", as_content(HostcoreError("no such column")))
        with pytest.raises(Errors):
            stage.result()
    assert {name: content for name, content in run.tree().items() if "record" not in name}.keys() == before.keys()


def test_one_of_several_ranks_evaluates_nothing(plan: Callable[..., RunPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = plan()
    variables = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OneOfSeveral, match="this process is rank 1 of 2") as caught:
        evaluate(alone, None, Path("no-checkpoint"), relay=print, tell=print)
    assert caught.value.code == "environment.ranks"
