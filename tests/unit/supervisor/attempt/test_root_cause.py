"""Telling the failure that was first from those that follow from it."""

import signal
from pathlib import Path

import pytest

from hostcore.events.merger import Entry
from hostcore.supervisor.attempt.root_cause import first_failure, is_consequence
from hostcore.supervisor.workers.session import Member
from hostcore.supervisor.workers.spawn import WorkerExit
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import Payload, RunFailed

GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:{}. This is typically caused by …"
BROKEN = RunError(type="RuntimeError", message=GLOO.format("553] Connection closed by peer [127.0.0.1]:62109"))
OWN = RunError(type="ValueError", message="the loss has exploded")


@pytest.mark.parametrize(
    "error",
    [
        BROKEN,
        RunError(
            type="RuntimeError", message=GLOO.format("537] Read error [127.0.0.1]:2989: Connection reset by peer")
        ),
        RunError(type="RuntimeError", message=GLOO.format("9] Timed out waiting 1800000ms for recv operation to end")),
        RunError(type="DistBackendError", message="NCCL communicator was aborted on rank 1."),
        RunError(type="DistNetworkError", message="The client socket has failed to connect"),
        RunError(type="CannotJoin", message="the ranks did not come together"),
        RunError(
            type="TrainingStopped",
            message="see above",
            traceback=f"RuntimeError: {BROKEN.message}\n\nThe above exception was the direct cause of …",
        ),
    ],
    ids=lambda error: error.message[-40:],
)
def test_a_collective_that_broke_off_is_a_consequence(error: RunError) -> None:
    assert is_consequence(error)


@pytest.mark.parametrize(
    "error",
    [
        OWN,
        RunError(type="ConnectionResetError", message="[Errno 104] Connection reset by peer"),
        RunError(type="RuntimeError", message="mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        RunError(type="TimeoutError", message="the data server timed out"),
    ],
    ids=lambda error: error.message,
)
def test_anything_else_is_none(error: RunError) -> None:
    assert not is_consequence(error)


def said(**ends: tuple[int, Payload]) -> dict[int, Entry]:
    """``said(r0=(1000, RunSucceeded()))``: what ranks have written, and when."""
    return {
        int(name[1:]): Entry(payload=end, step=3, epoch=0, time_ms=time_ms) for name, (time_ms, end) in ends.items()
    }


def member(
    rank: int, code: int, *, ended_ms: int = 0, was_killed: bool = False, output: Path = Path("none.log")
) -> Member:
    exit_ = WorkerExit(code)
    return Member(rank=rank, worker=None, output=output, exit=exit_, ended_ms=ended_ms, was_killed=was_killed)  # type: ignore[arg-type]


def first(members: list[Member], told: dict[int, Entry]) -> int | None:
    def of_death(one: Member) -> RunError:
        return RunError(type="WorkerDied", message=str(one.exit), rank=one.rank)

    found = first_failure(members, told, {}, of_death=of_death)
    return found.rank if found else None


class TestTheFirstFailure:
    def test_is_the_earliest_of_all_when_none_stands_for_itself(self) -> None:
        told = said(r0=(5, RunFailed(error=BROKEN)), r1=(4, RunFailed(error=BROKEN)))
        assert first([member(0, 1), member(1, 1)], told) == 1

    def test_is_not_the_abort_of_a_rank_whose_library_gave_up_on_the_others(self, tmp_path: Path) -> None:
        output = tmp_path / "0.log"
        output.write_text("terminate called after throwing an instance of 'c10::DistBackendError'\n"
                                        "  what(): [Rank 0] ProcessGroupNCCL's watchdog got an error\n")  # fmt: skip
        members = [member(0, -signal.SIGABRT, ended_ms=5, output=output), member(1, -signal.SIGSEGV, ended_ms=6)]
        assert first(members, {}) == 1
