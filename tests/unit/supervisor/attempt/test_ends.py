"""How a worker died, and what signals ask for."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from hostcore.supervisor.attempt.outcome import died
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.workers.session import Member
from hostcore.supervisor.workers.spawn import WorkerExit

CANCEL = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")
TERM = Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")


def dead(exit_: WorkerExit, output: Path) -> Member:
    return Member(rank=0, worker=None, output=output, exit=exit_)  # type: ignore[arg-type]


class TestADeadWorker:
    @pytest.mark.parametrize(
        ("exit_", "kind", "words"),
        [
            (WorkerExit(3), "WorkerDied", "the worker exited with code 3 after step 7"),
            (WorkerExit(-40), "WorkerDied", "the worker was killed by signal 40 after step 7"),
            (WorkerExit(-signal.SIGSEGV), "SegmentationFault", "the worker was killed by SIGSEGV"),
            (WorkerExit(-signal.SIGBUS), "BusError", "the worker was killed by SIGBUS"),
            (WorkerExit(-signal.SIGABRT), "Aborted", "the worker was killed by SIGABRT"),
            (WorkerExit(-signal.SIGKILL, out_of_memory=True), "OutOfMemory", "killed the worker for lack of memory"),
        ],
    )
    def test_is_named_by_what_it_died_of(self, tmp_path: Path, exit_: WorkerExit, kind: str, words: str) -> None:
        error = died(dead(exit_, tmp_path / "none.log"), step=7)
        assert error.type == kind
        assert words in error.message
        assert error.hint

    def test_shows_its_last_words(self, tmp_path: Path) -> None:
        output = tmp_path / "worker.log"
        output.write_bytes(b"".join(b"line %d\n" % number for number in range(100)) + b"\xff torn")
        assert died(dead(WorkerExit(1), output), step=0).traceback.splitlines() == [
            *(f"line {number}" for number in range(61, 100)),
            "\ufffd torn",
        ]

    def test_that_wrote_gigabytes_shows_the_end_of_them(self, tmp_path: Path) -> None:
        output = tmp_path / "worker.log"
        with output.open("wb") as file:
            file.truncate(3 << 30)  # sparse
            file.seek(0, os.SEEK_END)
            file.write(b"\nthe last line\n")
        assert dead(WorkerExit(1), output).tail().splitlines()[-1] == "the last line"


USR1 = Asked(status="preempted", reason="received SIGUSR1", requested_by="signal:SIGUSR1")


class TestSignals:
    @pytest.mark.parametrize(
        ("numbers", "seconds", "asked", "forced"),
        [
            ([signal.SIGINT], 0, CANCEL, False),
            ([signal.SIGTERM], 0, TERM, False),
            ([signal.SIGUSR1], 0, USR1, False),
            ([signal.SIGINT, signal.SIGINT], 0, CANCEL, True),
            ([signal.SIGTERM, signal.SIGINT], 0, TERM, True),
            ([signal.SIGINT, signal.SIGTERM], 0, CANCEL, False),
            ([signal.SIGUSR1, signal.SIGTERM], 0, USR1, False),
            ([signal.SIGTERM, signal.SIGTERM], 0.1, TERM, False),  # a scheduler delivers it twice
            ([signal.SIGTERM, signal.SIGTERM], 3, TERM, True),
        ],
    )
    def test_ask_the_run_to_stop_and_a_second_one_forces_it_unless_it_is_another_or_the_same(
        self, numbers: list[signal.Signals], seconds: float, asked: Asked, forced: bool
    ) -> None:
        with Interrupts(clock=itertools.count(0.0, seconds).__next__) as interrupts:
            for number in numbers:
                os.kill(os.getpid(), number)
        assert (interrupts.first, interrupts.forced) == (asked, forced)

    @pytest.mark.parametrize(("told", "later", "forced"), [(CANCEL, 1, False), (CANCEL, 2, True), (TERM, 1, True)])
    def test_a_ctrl_c_that_another_rank_has_passed_on_before_it_came_here_is_the_same(
        self, told: Asked, later: int, forced: bool
    ) -> None:
        """As from a terminal or a launcher, to all ranks at once."""
        with Interrupts() as interrupts:
            interrupts.hear(told, hurried=False, forced=False)
            for _ in range(later):
                signal.raise_signal(signal.SIGINT)
        assert (interrupts.first, interrupts.forced) == (told, forced)

    def test_a_ctrl_c_that_was_heard_here_first_is_the_same_as_well(self) -> None:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.hear(CANCEL, hurried=False, forced=False)
        assert not interrupts.forced
