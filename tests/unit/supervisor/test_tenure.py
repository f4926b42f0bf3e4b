"""The clock by which a supervisor knows that it has not looked for long."""

import time

import pytest

from hostcore.supervisor.tenure import uptime


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_the_time_in_which_the_machine_is_suspended_counts() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= uptime() <= time.clock_gettime(time.CLOCK_BOOTTIME)
