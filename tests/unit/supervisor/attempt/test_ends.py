"""How a worker died, and what signals ask for."""

import os
import signal
import subprocess
import sys
import threading
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


class TestSignals:
    @pytest.mark.parametrize(
        ("number", "asked"),
        [
            (signal.SIGINT, CANCEL),
            (signal.SIGTERM, TERM),
            (signal.SIGUSR1, Asked(status="preempted", reason="received SIGUSR1", requested_by="signal:SIGUSR1")),
        ],
    )
    def test_ask_the_run_to_stop(self, number: signal.Signals, asked: Asked) -> None:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), number)
        assert (interrupts.first, interrupts.forced) == (asked, False)

    @pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
    def test_a_second_ctrl_c_forces_it(self, first: signal.Signals) -> None:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.forced

    @pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGUSR1])
    def test_a_first_sigterm_does_not(self, first: signal.Signals) -> None:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.forced is False

    def test_one_that_a_scheduler_delivers_twice_is_one(self) -> None:
        with Interrupts(clock=iter([0.0, 0.1]).__next__) as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        assert (interrupts.first.status, interrupts.forced) == ("preempted", False)

    def test_one_that_comes_again_later_forces_it(self) -> None:
        with Interrupts(clock=iter([0.0, 3.0]).__next__) as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.forced

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

    def test_are_handled_as_before_afterwards(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        with Interrupts():
            assert signal.getsignal(signal.SIGINT) is not before
        assert signal.getsignal(signal.SIGINT) is before

    def test_are_left_alone_in_another_thread(self) -> None:
        seen = []

        def enter() -> None:
            with Interrupts() as interrupts:
                seen.append(interrupts.first)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert seen == [None]


def test_the_supervisor_imports_neither_torch_nor_the_worker() -> None:
    code = (
        "import hostcore.supervisor.attempt.supervise, sys; "
        "print([m for m in sys.modules if 'torch' in m or m.startswith('hostcore.worker')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
