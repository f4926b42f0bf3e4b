"""How the ranks agree on requests to stop, on news, and on where they are."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.worker.ranks.meeting import AgreedStop, RanksDisagree, convene, in_words
from hostcore.worker.ranks.one import NoMeeting, OneRank
from hostcore.worker.requests import Requests
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs.run_state import Best, RunState

Together = Callable[..., list[Any]]


class Clock:
    """Moves on by the same time at every look."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


def test_what_one_rank_hears_all_hear_at_the_same_beat(together: Together, seed: int) -> None:
    draw = random.Random(seed)
    hears = {rank: draw.randrange(50) for rank in (0, 2)}

    def steps(rank: Any) -> tuple[int, list[Any]]:
        local = StopSwitch()
        stop = AgreedStop(local, rank, clock=Clock(draw.random() * rank.rank))
        for step in range(200):
            if hears.get(rank.rank) == step:
                local.request(f"rank {rank.rank} asks", "user", status="cancelled")
            stop.beat()
            if stop.requested:
                return step, [(one.reason, one.status) for one in stop.unheard()]
        raise AssertionError("nobody has heard")

    one, two, three = together(3, steps)

    assert one == two == three
    step, heard = one
    first = min(hears.values())
    assert first <= step < first + 33
    assert heard[0][0] in {f"rank {rank} asks" for rank in hears}


def test_nothing_changes_between_two_agreements(together: Together) -> None:
    def ask(rank: Any) -> list[bool]:
        stop = AgreedStop(StopSwitch(), rank, clock=Clock(0.001))
        stop.beat()  # they agree that the next agreement is 32 beats away
        stop.request("enough", "callback:a")
        seen = [stop.requested]
        for _ in range(31):
            stop.beat()
            seen.append(stop.requested)
        stop.beat()
        return [*seen, stop.requested, stop.first is not None, stop.interrupted is not None]

    for seen in together(2, ask):
        assert seen == [False] * 32 + [True, True, False]


def test_the_same_request_of_several_ranks_is_one_and_different_ones_come_by_rank(together: Together) -> None:
    def ask(rank: Any) -> list[str]:
        stop = AgreedStop(StopSwitch(), rank)
        stop.request("all", "callback:a")
        stop.request(f"rank {rank.rank}", "callback:b")
        stop.meet()
        stop.request("all", "callback:a")
        stop.meet()
        return [one.reason for one in stop.unheard()]

    assert together(3, ask) == [["all", "rank 0", "rank 1", "rank 2"]] * 3


class Alone:
    """A rank whose others have nothing to say. Writes down at which beat it tells and hears."""

    rank, world_size = 0, 2

    def __init__(self) -> None:
        self.beat = 0
        self.told: list[int] = []
        self.heard: list[int] = []

    def begin_largest(self, values: Any) -> Callable[[], list[int]]:
        self.told.append(self.beat)

        def answer() -> list[int]:
            self.heard.append(self.beat)
            return list(values)

        return answer

    def beats(self, stop: AgreedStop, number: int) -> None:
        for _ in range(number):
            self.beat += 1
            stop.beat()


def test_a_rank_tells_a_beat_before_it_waits_for_the_others() -> None:
    rank = Alone()
    rank.beats(AgreedStop(StopSwitch(), rank, clock=Clock(0.001)), 97)  # type: ignore[arg-type]
    assert (rank.told, rank.heard) == ([1, 32, 64, 96], [1, 33, 65, 97])


def test_a_meeting_between_the_two_hears_what_was_told_and_then_what_is_new() -> None:
    rank = Alone()
    stop = AgreedStop(StopSwitch(), rank, clock=Clock(0.001))  # type: ignore[arg-type]
    rank.beats(stop, 32)
    stop.meet()
    assert (rank.told, rank.heard) == ([1, 32, 32], [1, 32, 32])
    rank.beats(stop, 32)
    assert (rank.told[3:], rank.heard[3:]) == ([63], [64])


def test_a_request_between_the_two_is_heard_by_all_the_next_time(together: Together) -> None:
    def ask(rank: Any) -> list[int]:
        local = StopSwitch()
        stop = AgreedStop(local, rank, clock=Clock(0.001))
        for beat in range(1, 70):
            stop.beat()
            if beat == 32 and rank.rank == 1:
                local.request("enough", "user", status="cancelled")
            if stop.requested:
                return [beat, len(list(stop.unheard()))]
        raise AssertionError("nobody has heard")

    assert together(2, ask) == [[65, 1]] * 2


def test_news_that_was_acted_upon_between_the_two_is_none_any_more() -> None:
    class News:
        news_here, has_news, acted = True, False, 0

    rank, news = Alone(), News()
    stop = AgreedStop(StopSwitch(), rank, clock=Clock(0.001))  # type: ignore[arg-type]
    rank.beats(stop, 1)
    stop.carry(news)
    rank.beats(stop, 31)
    news.news_here, news.acted = True, 1  # of a checkpoint that was begun since
    rank.beats(stop, 1)
    assert (news.news_here, news.has_news) == (True, False)
    rank.beats(stop, 32)
    assert (news.news_here, news.has_news) == (False, True)


@pytest.mark.parametrize(("seconds", "apart"), [(0.0001, 32), (0.099, 10), (5.0, 1)])
def test_agreements_are_about_a_second_apart_and_32_beats_at_most(
    together: Together, seconds: float, apart: int
) -> None:
    def beats(rank: Any) -> int:
        now = [0.0]
        # The slower one decides.
        stop = AgreedStop(StopSwitch(), rank, clock=lambda: now[0])
        for _ in range(1 + 4 * apart):
            now[0] += seconds if rank.rank else seconds / 10
            stop.beat()
        return rank.room.meetings

    assert together(2, beats) == [5, 5]


def test_a_backoff_is_over_when_it_is_for_the_slowest_rank_or_when_somebody_asks(together: Together) -> None:
    def wait(rank: Any) -> tuple[bool, bool]:
        stop = AgreedStop(StopSwitch(), rank)
        stop.sleep(0.2 * rank.rank)
        slept = stop.requested
        if rank.rank == 1:
            stop.request("no more", "user", status="cancelled")
        stop.sleep(600)
        return slept, stop.requested

    assert together(2, wait) == [(False, True)] * 2


def test_news_of_one_rank_reaches_all_at_the_same_beat(together: Together) -> None:
    class News:
        news_here = has_news = False
        acted = 0

    def beats(rank: Any) -> int:
        stop, news = AgreedStop(StopSwitch(), rank), News()
        stop.carry(news)
        for beat in range(100):
            if beat == 7 and rank.rank == 0:
                news.news_here = True
            stop.beat()
            if news.has_news:
                assert not news.news_here
                return beat
        raise AssertionError("no news")

    first, second = together(2, beats)
    assert 7 <= first == second


def test_ranks_at_different_places_are_told_who_is_where(together: Together) -> None:
    def meet(rank: Any) -> None:
        AgreedStop(StopSwitch(), rank, where=lambda: f"step {3 + rank.rank}").meet()

    for error in together(2, meet):
        assert isinstance(error, RanksDisagree)
        assert "rank 0 is at a meeting of step 3; rank 1 is at a meeting of step 4" in str(error)


def test_where_a_rank_is_includes_what_its_components_have_asked_for() -> None:
    requests = Requests(
        StopSwitch(),
        is_stopping=bool,
        asker=lambda: "callback:a",
        ranks=OneRank(),
        emit=print,
        author_of=str,
        run_state=RunState(),
        metric_every=1,
    )
    assert in_words(RunState(step=4), requests) == "step 4"
    requests.request_best(Best(metric="val/loss", value=0.5, step=4))
    requests.request_restore(2, "it exploded")
    assert in_words(RunState(step=4), requests) == "step 4, val/loss 0.5 is the best, go back to step 2"


def test_a_single_rank_meets_nobody() -> None:
    switch = StopSwitch()
    stop, meeting = convene(switch, OneRank(), where=str)
    assert stop is switch
    assert isinstance(meeting, NoMeeting)


def test_a_checkpoint_by_time_is_due_on_all_ranks_at_the_same_beat_by_the_clock_of_the_first(
    together: Together,
) -> None:
    def beats(rank: Any) -> list[int]:
        now = [0.0]
        switch, told = StopSwitch(), []
        requests = Requests(
            switch,
            is_stopping=lambda: False,
            asker=str,
            ranks=rank,
            emit=print,
            author_of=str,
            run_state=RunState(),
            metric_every=0,
            checkpoint_seconds=10.0,
            clock=lambda: now[0],
        )
        stop = AgreedStop(switch, rank, clock=lambda: now[0])
        stop.carry(requests)
        for beat in range(40):
            now[0] += 1.0 if rank.rank == 0 else 3.0  # what the clock of the second says does not count
            requests.look_at_clock()
            stop.beat()
            if requests.pending:
                assert requests.has_news
                told.append(beat)
                requests.restart_clock()
                requests.take_best()
        return told

    first, second = together(2, beats)
    assert first == second
    assert first == [9, 19, 29, 39]
