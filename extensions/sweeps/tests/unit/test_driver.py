"""What a driver does about runs that go wrong before they are runs, and about a service that is away.

The runs are simulated: neither a process that is killed in the instant before it makes its run directory, nor a service
that is away for one look, can be had on purpose.
"""

import resource
from collections.abc import Callable, Container, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import recorded_sweep

from hostcore.events.writer import now_ms
from hostcore.runs.lease import ProcessIdentity
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.driver import DriveEnd, Driver, _trial
from hostcore_sweeps.folder import SweepFolder, SweepUnwritable, TrialPlace
from hostcore_sweeps.records import Record, RecordLog, SessionEnded, SessionGoesOn, SessionStarted, read_records
from hostcore_sweeps.status import SweepStatus, read_status
from hostcore_sweeps.trial_runs import Refusal, Reported, RunEnd, RunState

AWAY = HostcoreError("the service does not answer", code="service.unreachable")


class SimulatedRuns:
    """Runs that succeed in the instant of their start.

    :param stillborn: So many starts, from the first on, end before there is a run.
    :param busy: Trials that find their devices held.
    :param killed: So many starts, from the first on, whose check of the job is killed.
    :param outage: Starts, by their number, at which the engine does not answer.
    :param away: Looks, by their number, at which the service is away.
    :param loss: What each reports.
    """

    seen_metrics = frozenset({"loss"})
    validation_metrics = frozenset[str]()

    def __init__(
        self,
        *,
        stillborn: int = 0,
        busy: frozenset[int] = frozenset(),
        killed: int = 0,
        outage: Container[int] = (),
        away: frozenset[int] = frozenset(),
        loss: float | None = 1.0,
    ) -> None:
        self._loss = loss
        self._stillborn, self._busy, self._away = stillborn, busy, away
        self._outage, self._killed = outage, killed
        self._looks = 0
        self.starts: list[int] = []
        self.cancelled: list[int] = []
        self._made: set[int] = set()
        self.told: set[int] = set()

    def start(self, number: int) -> None:
        self.starts.append(number)
        is_started = len(self.starts) > max(self._stillborn, self._killed) and len(self.starts) not in self._outage
        if is_started and number not in self._busy:
            self._made.add(number)

    def state(self, number: int) -> RunState:
        self._looks += 1
        if self._looks in self._away:
            raise AWAY
        return "over" if number in self._made else "absent"

    def refusal(self, number: int) -> Refusal | None:
        if len(self.starts) in self._outage:
            return Refusal(message="Ray does not answer", cause="outage")
        if len(self.starts) <= self._killed:
            return Refusal(message="the worker was killed by SIGKILL while it checked the job", cause="death")
        return Refusal(message="device.busy", cause="busy") if number in self._busy else None

    def reports(self, number: int) -> Iterator[Reported]:
        if number in self._made - self.told:
            self.told.add(number)
            yield Reported(step=1, values={"loss": self._loss})

    def end(self, number: int) -> RunEnd:
        return RunEnd(status="succeeded", step=1, reason="", was_interrupted=False, was_paused=False)

    def cancel(self, number: int, *, reason: str, force: bool = False) -> None:
        self.cancelled.append(number)


def driven(
    path: Path,
    runs: Any,
    *,
    ticks: int = 100,
    show: Callable[[Callable[[], SweepStatus]], None] = lambda _: None,
    **limits: Any,
) -> DriveEnd:
    """Drive a sweep, and stop it after some ticks."""
    sweep = recorded_sweep.walk(sampler="random", limits={"trials": 3, **limits})
    folder = SweepFolder(path / "walk")
    folder.make(sweep, TrialPlace(runs=path / "runs"))
    interrupts = Interrupts()
    left = iter(range(ticks))

    def sleep(_: float) -> None:
        if next(left, None) is None:
            interrupts.hear(
                Asked(status="cancelled", reason="too many ticks", requested_by="user"), hurried=False, forced=False
            )

    with closing(RecordLog(folder.records)) as records:
        driver = Driver(sweep, folder, records, runs, interrupts=interrupts, show=show, sleep=sleep)
        end = driver.drive()
    assert [_trial(row) for row in read_status(folder).trials] == driver._trials, "the next driver knows others"
    return end


def trials_of(folder: Path) -> list[Any]:
    return read_status(SweepFolder(folder / "walk")).trials


@pytest.mark.parametrize(
    ("trouble", "state", "reason"),
    [
        ({"stillborn": 2}, "complete", ""),
        ({"stillborn": 3}, "failed", "3 times in a row: its process has ended before there was a run; see "),
        ({"killed": 2}, "complete", ""),
        ({"killed": 3}, "failed", "3 times in a row: the worker was killed"),
        ({"outage": range(1, 4)}, "failed", "Ray does not answer"),
    ],
    ids=str,
)
def test_a_trial_that_does_not_become_a_run_is_started_again_and_fails_after_its_last_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, Any], state: str, reason: str
) -> None:
    monkeypatch.setattr("hostcore_sweeps.driver._BUSY_SECONDS", 0.0)
    runs = SimulatedRuns(**trouble)
    assert driven(tmp_path, runs, resumes=2).status == "finished"
    first, *_ = trials_of(tmp_path)
    assert (first.state, (first.reason or "").startswith(reason)) == (state, True)
    assert runs.starts == [0, 0, 0, 1, 2]


class LivingRuns(SimulatedRuns):
    """Runs that seem to be over, live after all, and report something just before their end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[int] = []

    def end(self, number: int) -> RunEnd:
        self.ended.append(number)
        return attrs.evolve(super().end(number), status="running" if self.ended.count(number) == 1 else "succeeded")

    def reports(self, number: int) -> Iterator[Reported]:
        if self.ended.count(number) > 1:
            yield from super().reports(number)


def test_a_trial_whose_run_lives_after_all_is_looked_at_again_and_its_last_reports_count(tmp_path: Path) -> None:
    runs = LivingRuns()
    assert driven(tmp_path, runs).status == "finished"
    assert {row.state for row in trials_of(tmp_path)} == {"complete"}
    assert runs.starts == [0, 1, 2]


def test_no_trial_is_sampled_while_others_wait_for_a_device(tmp_path: Path) -> None:
    runs = SimulatedRuns(busy=frozenset({0}))
    assert driven(tmp_path, runs).reason == "too many ticks"
    assert len(trials_of(tmp_path)) == 1


def test_an_engine_that_was_there_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hostcore_sweeps.driver._BUSY_SECONDS", 0.0)
    runs = SimulatedRuns(outage=range(2, 40))
    assert driven(tmp_path, runs, resumes=2).status == "finished"
    assert runs.starts == [0, *39 * [1], 2]
    assert {row.state for row in trials_of(tmp_path)} == {"complete"}


@pytest.mark.parametrize("away", [*({look} for look in range(3, 12)), {*range(3, 9)}], ids=str)
def test_a_service_that_is_away_is_waited_for_and_fails_no_trial(tmp_path: Path, away: set[int]) -> None:
    assert driven(tmp_path, SimulatedRuns(away=frozenset(away))).status == "finished"
    assert [row.state for row in trials_of(tmp_path)] == ["complete"] * 3


def test_a_service_that_was_never_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostcoreError, match="does not answer"):
        driven(tmp_path, SimulatedRuns(away=frozenset(range(1, 9))))


def test_a_terminal_that_was_closed_ends_no_sweep(tmp_path: Path) -> None:
    def show(_: Callable[[], SweepStatus]) -> None:
        raise OSError(5, "Input/output error")

    assert driven(tmp_path, SimulatedRuns(), show=show).status == "finished"


def test_a_driver_that_has_nothing_to_record_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostcore_sweeps.driver.SIGN_SECONDS", 0.0)
    driven(tmp_path, SimulatedRuns(busy=frozenset({0})), ticks=3)
    recorded = [record for _, record in read_records(SweepFolder(tmp_path / "walk").records)]
    assert recorded.count(SessionGoesOn()) >= 3


@pytest.mark.parametrize(("hours_at_work", "status"), [(0.5, "finished"), (1.5, "limit")])
@pytest.mark.parametrize("last", [SessionGoesOn(), SessionEnded(status="stopped", reason="lunch")])
def test_hours_are_those_in_which_a_driver_was_at_work(
    tmp_path: Path, hours_at_work: float, status: str, last: Record
) -> None:
    begun = now_ms() - 24 * 3_600_000
    (tmp_path / "walk").mkdir()
    times = iter([begun, begun + round(hours_at_work * 3_600_000)])
    with closing(RecordLog(tmp_path / "walk" / "records.jsonl", clock=times.__next__)) as records:
        records.append(SessionStarted(process=attrs.evolve(ProcessIdentity.current(), start_time=1)))
        records.append(last)
    assert driven(tmp_path, SimulatedRuns(), hours=1).status == status


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As near to a full disk as a process can come by itself: the same calls fail, with another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_sweep_whose_disk_is_full_at_any_instant_says_so_and_goes_on(tmp_path: Path) -> None:
    def trials(path: Path) -> list[Any]:
        return [(row.number, row.values, row.state) for row in trials_of(path)]

    runs = SimulatedRuns()
    assert driven(tmp_path / "peace", runs).status == "finished"
    full = set()
    for size in range(0, 3000, 200):
        path, runs = tmp_path / str(size), SimulatedRuns()
        path.mkdir()
        try:
            with no_file_longer_than(size):
                driven(path, runs)
        except SweepUnwritable as error:
            assert error.hint is not None
            assert error.hint.startswith("make room")
            full.add(Path(error.file or "").name)
        runs.told.clear()  # the next driver reads the logs from their beginning
        assert driven(path, runs).status == "finished"
        assert trials(path) == trials(tmp_path / "peace")
    assert {"records.jsonl", "optuna.journal"} <= full


def test_a_trial_without_a_finite_value_has_failed_for_this_driver_as_for_the_next(tmp_path: Path) -> None:
    assert driven(tmp_path, SimulatedRuns(loss=None)).exit_code == 1
    first, *_ = trials_of(tmp_path)
    assert (first.state, first.reason) == ("failed", "loss is not finite")
