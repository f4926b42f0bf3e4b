"""The folder of a sweep: what is read from it, whatever has become of its writer."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import recorded_sweep

from hostcore.events.times import moment
from hostcore.events.writer import now_ms
from hostcore.runs.documents import CorruptDocument
from hostcore.runs.lease import ProcessIdentity
from hostcore_sweeps.driving import stop
from hostcore_sweeps.folder import DifferentSweep, SweepFolder, SweepUnwritable, TrialPlace
from hostcore_sweeps.records import (
    PruneDecided,
    RecordLog,
    SessionEnded,
    SessionGoesOn,
    SessionStarted,
    TrialEnded,
    TrialReported,
    TrialSampled,
    TrialStarted,
    read_records,
)
from hostcore_sweeps.spec import Sweep
from hostcore_sweeps.status import best_of, job_of_trial, read_status

LR = "/hyperparams/lr"


def sweep_of(**keys: Any) -> Sweep:
    return recorded_sweep.walk(job={"trainer": "tiny", "run_id": "base", "max_steps": 3, "weights": "w.bin"}, **keys)


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    made = SweepFolder(tmp_path / "walk")
    made.make(sweep_of(), TrialPlace(runs=tmp_path / "runs"))
    return made


@pytest.fixture
def seconds() -> Iterator[int]:
    return iter(range(1000, 100000, 1000))


@pytest.fixture
def records(folder: SweepFolder, seconds: Iterator[int]) -> Any:
    log = RecordLog(folder.records, clock=seconds.__next__)
    log.append(SessionStarted(process=ProcessIdentity.current()))
    yield log
    log.close()


def trial(records: RecordLog, number: int, *losses: float | None, lr: float = 0.5) -> None:
    records.append(TrialSampled(number=number, run_id=f"walk-{number:04d}", values={LR: lr}))
    records.append(TrialStarted(number=number))
    for step, loss in enumerate(losses, 1):
        records.append(TrialReported(number=number, step=step, values={"loss": loss}))


def test_the_table_follows_from_the_records(folder: SweepFolder, records: RecordLog) -> None:
    trial(records, 0, 3.0, 2.0)
    trial(records, 1, 5.0, 4.0, 3.0)
    records.append(PruneDecided(number=1, step=2, reason="pruned"))
    records.append(TrialEnded(number=1, state="pruned", values={"loss": 4.0}, step=2, reason="pruned"))
    trial(records, 2, None)
    records.append(TrialEnded(number=2, state="failed", values={}, step=1, reason="loss is not finite"))
    status = read_status(folder)
    assert [row.state for row in status.trials] == ["running", "pruned", "failed"]
    assert [row.objective for row in status.trials] == [{"loss": 2.0}, {"loss": 4.0}, {}]
    assert [report.step for report in status.trials[1].reports] == [1, 2], "a step behind the decision counts"
    assert (status.state, status.best, status.most_trials) == ("running", [], 3)


def test_trials_of_a_driver_that_is_gone_are_paused(folder: SweepFolder, records: RecordLog) -> None:
    trial(records, 0, 3.0)
    gone = attrs.evolve(ProcessIdentity.current(), start_time=1)
    records.append(SessionStarted(process=gone))
    status = read_status(folder)
    assert (status.state, status.trials[0].state) == ("paused", "paused")
    assert status.reason is not None
    assert status.reason.startswith(f"its driver (process {gone.pid} on {gone.host}) ended without a word; ")


def test_a_driver_of_another_machine_lives_as_long_as_it_gives_signs_of_life(folder: SweepFolder) -> None:
    elsewhere = attrs.evolve(ProcessIdentity.current(), host="elsewhere", pid=7)
    now = now_ms()
    times = iter([now - 3_600_000, now - 3_599_000, now - 3_598_000])  # its clock is an hour behind
    with closing(RecordLog(folder.records, clock=times.__next__)) as log:
        log.append(SessionStarted(process=elsewhere))
        log.append(SessionGoesOn())
        os.utime(folder.records, (0, 0))
        silent = read_status(folder)
        log.append(SessionGoesOn())
        heard_of = read_status(folder)
    assert (silent.state, silent.driven_ms) == ("paused", 1000)
    assert silent.reason == (
        "its driver (process 7 on elsewhere) ended without a word; "
        f"its last sign of life was at {moment(now - 3_599_000)}"
    )
    assert (heard_of.state, heard_of.reason) == ("running", None)


def test_time_of_drivers_is_counted_without_the_pauses(
    folder: SweepFolder, records: RecordLog, seconds: Iterator[int]
) -> None:
    records.append(SessionEnded(status="stopped", reason="lunch"))  # at 2 s, begun at 1 s
    for _ in range(10):
        next(seconds)
    records.append(SessionStarted(process=ProcessIdentity.current()))
    records.append(SessionEnded(status="stopped", reason="tea"))
    assert read_status(folder).driven_ms == 2000
    assert read_status(folder).reason == "tea"


def test_a_torn_line_is_passed_over_and_dropped_by_the_next_writer(folder: SweepFolder) -> None:
    first = RecordLog(folder.records)
    trial(first, 0, 3.0)
    first.close()
    with folder.records.open("ab") as file:
        file.write(b'{"record":"trial_rep')
    assert len(list(read_records(folder.records))) == 3
    second = RecordLog(folder.records)
    second.append(TrialReported(number=0, step=2, values={"loss": 2.0}))
    second.close()
    assert [report.step for report in read_status(folder).trials[0].reports] == [1, 2]


def test_a_line_that_is_no_record_is_told(folder: SweepFolder, records: RecordLog) -> None:
    with folder.records.open("ab") as file:
        file.write(b'{"record":"trial_ended","time_ms":1}\n')
    with pytest.raises(CorruptDocument, match="not a record of a sweep"):
        read_status(folder)


def test_the_best_is_the_first_of_equals_and_a_front_of_several_objectives(
    folder: SweepFolder, records: RecordLog
) -> None:
    sweep = sweep_of(objective=[{"metric": "loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}])
    points = [(1.0, 0.5), (2.0, 0.9), (2.0, 0.8), (1.0, 0.5)]
    for number, (loss, accuracy) in enumerate(points):
        trial(records, number)
        values = {"loss": loss, "accuracy": accuracy}
        records.append(TrialEnded(number=number, state="complete", values=values, step=1))
    rows = read_status(folder).trials
    assert best_of(rows, sweep.spec.objectives) == [0, 1, 3]
    assert best_of(rows, sweep.spec.objectives[:1]) == [0]


def test_the_job_of_a_trial_has_absolute_paths_and_no_run_id(folder: SweepFolder, records: RecordLog) -> None:
    trial(records, 0, 1.0, lr=0.25)
    job = job_of_trial(read_status(folder), 0)
    assert job["hyperparams"] == {"lr": 0.25}
    assert job["weights"] == str(Path.cwd() / "w.bin")
    assert "run_id" not in job


def test_limits_of_an_edited_file_hold_and_trials_that_were_added_stay(folder: SweepFolder, tmp_path: Path) -> None:
    place = TrialPlace(runs=tmp_path / "runs")
    assert folder.add_trials(2, sweep_of()) == 5
    folder.make(sweep_of(), place)
    assert read_status(folder).most_trials == 5
    folder.make(sweep_of(limits={"trials": 9}), place)
    assert read_status(folder).most_trials == 9
    assert folder.add_trials(1, sweep_of()) == 10
    folder.make(sweep_of(limits={"trials": 9}), place)
    assert read_status(folder).most_trials == 10


def test_another_sweep_or_another_place_is_refused(folder: SweepFolder, tmp_path: Path) -> None:
    with pytest.raises(DifferentSweep, match="differs in space"):
        folder.make(sweep_of(space={LR: {"uniform": [0, 2]}}), TrialPlace(runs=tmp_path / "runs"))
    with pytest.raises(DifferentSweep, match="run at this machine"):
        folder.make(sweep_of(), TrialPlace(runs=tmp_path / "runs", server="http://127.0.0.1:1"))


def test_a_sweep_whose_driver_died_on_another_machine_can_be_stopped(folder: SweepFolder) -> None:
    with closing(RecordLog(folder.records)) as records:
        records.append(SessionStarted(process=attrs.evolve(ProcessIdentity.current(), host="elsewhere")))
    stop(folder, "enough")
    assert folder.read_stop() is None


def test_a_driver_that_forgets_a_wish_as_it_begins_is_asked_again(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(10))
    records = RecordLog(folder.records)
    records.append(SessionStarted(process=ProcessIdentity.current()))

    def sleep(_: float) -> None:
        if next(looks) == 0:
            folder.clear_stop()  # it begins
        else:
            assert folder.read_stop() is not None
            records.close()  # it has stopped

    monkeypatch.setattr("hostcore_sweeps.records._LOCK_SECONDS", 0.0)
    monkeypatch.setattr("hostcore_sweeps.driving.time.sleep", sleep)
    stop(folder, "enough")
    assert next(looks) == 2


@pytest.mark.parametrize("in_the_way", [".", "records.jsonl", "stop.json", "limits.json"])
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, in_the_way: str) -> None:
    folder = SweepFolder(tmp_path / "walk")
    if in_the_way == ".":
        folder.path.touch()
    else:
        folder.make(sweep_of(), TrialPlace(runs=tmp_path / "runs"))
        (folder.path / in_the_way).unlink(missing_ok=True)
        (folder.path / in_the_way / "x").mkdir(parents=True)  # nothing can be written there, also by root
    with pytest.raises(SweepUnwritable) as raised:
        if in_the_way == ".":
            folder.make(sweep_of(), TrialPlace(runs=tmp_path / "runs"))
        elif in_the_way == "records.jsonl":
            RecordLog(folder.records)
        elif in_the_way == "stop.json":
            folder.request_stop("enough")
        else:
            folder.make(sweep_of(limits={"trials": 4}), TrialPlace(runs=tmp_path / "runs"))
    assert str(folder.path) in (raised.value.file or "")
    assert raised.value.hint
