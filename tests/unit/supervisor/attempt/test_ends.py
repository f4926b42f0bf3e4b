"""How a worker died, what signals ask for, and the picture of the loss."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore.events.merger import Entry, EventLog
from hostcore.supervisor import plot
from hostcore.supervisor.attempt.outcome import died
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.plot import all_points, plot_loss, smooth
from hostcore.supervisor.workers.session import Member
from hostcore.supervisor.workers.spawn import WorkerExit
from hostcore_hookspecs.events import Metrics, Validation


def dead(exit_: WorkerExit, output: Path) -> Member:
    return Member(rank=0, worker=None, output=output, exit=exit_)  # type: ignore[arg-type]


class TestADeadWorker:
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (3, "exited with code 3"),
            (0, "exited with code 0"),
            (-signal.SIGKILL, "was killed by SIGKILL"),
            (-40, "was killed by signal 40"),
        ],
    )
    def test_is_described_in_words(self, tmp_path: Path, code: int, words: str) -> None:
        error = died(dead(WorkerExit(code), tmp_path / "none.log"), step=7)
        assert error.type == "WorkerDied"
        assert error.message.startswith(f"the worker {words} after step 7")
        assert error.hint

    def test_of_a_real_time_signal_is_described_as_python_sees_it(self, tmp_path: Path) -> None:
        process = subprocess.Popen(["sleep", "1000"])
        process.send_signal(40)
        exit_ = WorkerExit(process.wait())
        assert "signal 40" in died(dead(exit_, tmp_path / "none.log"), step=0).message

    @pytest.mark.parametrize(
        ("exit_", "kind", "words"),
        [
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

    def test_that_wrote_nothing_shows_nothing(self, tmp_path: Path) -> None:
        assert dead(WorkerExit(1), tmp_path / "none.log").tail() == ""


class TestSignals:
    @pytest.mark.parametrize(
        ("number", "asked"),
        [
            (signal.SIGINT, Asked(status="cancelled", reason="interrupted by the user", requested_by="user")),
            (signal.SIGTERM, Asked(status="preempted", reason="received SIGTERM", requested_by="signal:SIGTERM")),
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


class TestTheLossCurve:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Callable[..., Path]:
        """``log((1, 0.5), …)``: an event log with these losses."""

        def write(*points: tuple[int, float | None]) -> Path:
            log = EventLog(tmp_path / "events.jsonl", run_id="a", attempt=1)
            for step, loss in points:
                log.append(Entry(payload=Metrics(metrics={"train/loss": loss, "lr": 1.0}), step=step, epoch=0))
            log.close()
            return tmp_path / "events.jsonl"

        return write

    def test_is_a_picture(self, log: Callable, tmp_path: Path) -> None:
        picture = tmp_path / "plots" / "loss.png"
        assert plot_loss(log((1, 3.0), (2, 2.0), (3, 1.0)), picture, title="a") is True
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_has_the_curve_of_the_validations_beside_that_of_the_training(
        self, log: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = log((1, 3.0), (2, 2.0), (3, 1.0))
        with_validations = EventLog(events, run_id="a", attempt=1)
        for step, loss in [(1, 3.5), (3, 1.25)]:
            payload = Validation(metrics={"val/loss": loss, "val/mae": 9.0}, weight=4.0)
            with_validations.append(Entry(payload=payload, step=step, epoch=0))
        with_validations.close()
        figures: list[Any] = []
        monkeypatch.setattr(plot, "_save", lambda figure, _: figures.append(figure))
        assert plot_loss(events, tmp_path / "plots" / "loss.png", title="a") is True
        (axes,) = figures[0].axes
        assert {line.get_label(): line.get_xydata().tolist() for line in axes.lines} == {
            "train/loss": [[1, 3], [2, 2], [3, 1]],
            "val/loss": [[1, 3.5], [3, 1.25]],
        }

    @pytest.mark.parametrize("points", [[], [(1, 3.0)], [(1, None), (2, None)]])
    def test_of_too_little_is_none(self, log: Callable, tmp_path: Path, points: list) -> None:
        assert plot_loss(log(*points), tmp_path / "plots" / "loss.png", title="a") is False
        assert not (tmp_path / "plots").exists()

    def test_has_the_last_loss_of_a_step_that_was_trained_twice(self, log: Callable) -> None:
        points = all_points(log((1, 3.0), (2, 2.0), (3, None), (2, 1.5), (3, 1.0)))
        assert points["train/loss"] == [(1, 3.0), (2, 1.5), (3, 1.0)]

    def test_passes_over_a_line_that_is_still_being_written(self, log: Callable) -> None:
        path = log((1, 3.0))
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:-10])
        assert all_points(path)["train/loss"] == [(1, 3.0)]

    def test_smoothed_stays_where_the_loss_is_constant(self) -> None:
        assert smooth([2.0] * 5, weight=0.9) == pytest.approx([2.0] * 5)

    def test_smoothed_begins_with_the_first_loss(self) -> None:
        assert smooth([4.0, 0.0], weight=0.9)[0] == pytest.approx(4.0)


def test_the_supervisor_imports_neither_torch_nor_the_worker() -> None:
    code = (
        "import hostcore.supervisor.attempt.supervise, sys; "
        "print([m for m in sys.modules if 'torch' in m or m.startswith('hostcore.worker')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
