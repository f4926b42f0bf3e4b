"""Holding a run: the clock by which a supervisor knows that it has not looked for long, and what it finds then."""

from types import SimpleNamespace

import pytest

from hostcore.supervisor.attempt import lease_guard


@pytest.mark.parametrize(
    ("clocks", "asked"),
    [
        ({"CLOCK_MONOTONIC": 1, "CLOCK_BOOTTIME": 7}, 7),  # Linux: the other one stands still in a suspend
        ({"CLOCK_MONOTONIC": 6}, 6),  # macOS: this one does not
    ],
    ids=["linux", "macos"],
)
def test_the_time_in_which_the_machine_is_suspended_counts(
    monkeypatch: pytest.MonkeyPatch, clocks: dict[str, int], asked: int
) -> None:
    monkeypatch.setattr(lease_guard, "time", SimpleNamespace(clock_gettime=float, **clocks))
    assert lease_guard.uptime() == asked
