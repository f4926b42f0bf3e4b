"""How the ranks agree on requests to stop, on news, and on where they are."""

import random
from typing import Any

import pytest
from thread_ranks import together

from hostcore.worker.ranks.meeting import AgreedStop
from hostcore.worker.stop import StopSwitch


class Clock:
    """Moves on by the same time at every look."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


def test_what_one_rank_hears_all_hear_at_the_same_beat(seed: int) -> None:
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


def test_the_same_request_of_several_ranks_is_one_and_different_ones_come_by_rank() -> None:
    def ask(rank: Any) -> list[str]:
        stop = AgreedStop(StopSwitch(), rank)
        stop.request("all", "callback:a")
        stop.request(f"rank {rank.rank}", "callback:b")
        stop.meet()
        stop.request("all", "callback:a")
        stop.meet()
        return [one.reason for one in stop.unheard()]

    assert together(3, ask) == [["all", "rank 0", "rank 1", "rank 2"]] * 3


@pytest.mark.parametrize(("seconds", "apart"), [(0.0001, 32), (0.099, 10), (5.0, 1)])
def test_agreements_are_about_a_second_apart_and_32_beats_at_most(seconds: float, apart: int) -> None:
    def beats(rank: Any) -> int:
        now = [0.0]
        # The slower one decides.
        stop = AgreedStop(StopSwitch(), rank, clock=lambda: now[0])
        for _ in range(1 + 4 * apart):
            now[0] += seconds if rank.rank else seconds / 10
            stop.beat()
        return rank.room.meetings

    assert together(2, beats) == [5, 5]
